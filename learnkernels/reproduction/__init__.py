"""Tables and figures of the papers, computed again and compared with what the papers print: `learnkernels papers`."""
