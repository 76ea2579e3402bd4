;; W8: a step of a kind that the contract does not have.
(data $step (i32.const 160) "\00\00\00\00\c8\00\00\00\00\01\00\00\03\00\00\00")
