#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(bytes certificate);
