;; W8: a list of 2^28 events, whose size in bytes is a multiple of 2^32: nothing, to a host that
;; multiplies in 32 bits.
(data $step (i32.const 160) "\00\00\00\00\01\00\00\00\00\01\00\00\00\00\00\10")
