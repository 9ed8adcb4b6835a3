#![cfg_attr(fuzzing, no_main)]
padproof_fuzz::target!(case pack_round_trip);
