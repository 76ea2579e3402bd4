;; Returns a byte more from `configure` than it may, if it has options.

;; The option's name at 1024, the list of it at 1032.
(data $option (i32.const 1024) "option\00\00" "\00\04\00\00\06\00\00\00")

(data $description (i32.const 144)
  "\10\00\00\00\07\00\00\00" "\20\00\00\00\05\00\00\00" "\48\00\00\00\0b\00\00\00"
  "\00\00\00\00\00\00\00\00\00\00\00\00"
  "\70\00\00\00\02\00\00\00" "\08\04\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
  "\80\00\00\00\01\00\00\00")

;; The result of `configure` then: ok, 65,537 bytes.
(data $too_much (i32.const 1040) "\00\00\00\00" "\00\00\00\00\01\00\01\00")

(func $configure (export "weir:plugin/adapter@0.2.0#configure") (param $options i32) (param $count i32) (result i32)
  (if (result i32) (local.get $count)
    (then (i32.const 1040))
    (else (i32.const 224))))
