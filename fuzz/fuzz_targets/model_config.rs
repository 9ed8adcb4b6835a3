#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(bytes model_config);
