;; W8: a list of 2^29 events of 120 bytes each, whose size in bytes is a multiple of 2^32: nothing, to
;; a host that multiplies in 32 bits.
(data $step (i32.const 264) "\01\00\00\00\80\01\00\00\00\00\00\20")
