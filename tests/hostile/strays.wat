;; Describes paths that begin with /v1/, and requests /v2/completions if the model's name has 7 letters. It always returns
;; `ok`.

;; Two capabilities, and the path prefix: the first four bytes of the path at 56.
(data $lists (i32.const 112) "\58\00\00\00\04\00\00\00" "\60\00\00\00\06\00\00\00" "\38\00\00\00\04\00\00\00")

;; The step in the result of `begin`: send; the method, the path, no headers, no body.
(data $step (i32.const 264) "\00\00\00\00" "\30\00\00\00\04\00\00\00" "\38\00\00\00\0f\00\00\00")

;; The result of `end`, at 1024: the four events at 384, no failure.
(data $answer (i32.const 1024) "\80\01\00\00\04\00\00\00")

(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (if (i32.eq (i32.load offset=12 (local.get $arguments)) (i32.const 7))
    (then (i32.store8 (i32.const 58) (i32.const 50))))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))

(func $end (export "weir:plugin/adapter@0.2.0#[method]exchange.end") (param $self i32) (result i32)
  (i32.const 1024))
