#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(case pad_identity);
