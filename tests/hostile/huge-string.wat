;; W8: a text of 1 GiB, in a memory of 128 KiB.
(data $fragment (i32.const 504) "\02\00\00\00\00\00\00\00" "\00\00\00\00\28\00\00\00\00\00\00\40")
