;; W8: a text of 28 MiB that is really there: within the memory, not within what a call may carry.
(memory $memory (export "memory") 480)
(data $fragment (i32.const 504) "\02\00\00\00\00\00\00\00" "\00\00\00\00\00\00\01\00\00\00\c0\01")
