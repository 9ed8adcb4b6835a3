#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(case tp_sum);
