;; W8: a list of events at an odd address.
(data $step (i32.const 160) "\00\00\00\00\01\00\00\00\01\01\00\00\03\00\00\00")
