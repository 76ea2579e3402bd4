;; W8: a step of a kind that the contract does not have.
(data $step (i32.const 264) "\c8\00\00\00\80\01\00\00\04\00\00\00")
