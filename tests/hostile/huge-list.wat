;; W8: a list of 2^32 - 1 events.
(data $step (i32.const 264) "\01\00\00\00\80\01\00\00\ff\ff\ff\ff")
