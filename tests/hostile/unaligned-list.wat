;; W8: a list of events at an odd address.
(data $step (i32.const 264) "\01\00\00\00\81\01\00\00\04\00\00\00")
