;; W8: a text of 1 GiB, in a memory of 128 KiB.
(data $second_event (i32.const 368) "\01\00\00\00\00\00\00\00\28\00\00\00\00\00\00\40")
