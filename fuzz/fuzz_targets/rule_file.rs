#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(bytes rule_file);
