;; Unavailable at the first attempt; answers with the number of the attempt at any other.
;;
;; In the argument of `begin`, the attempt is at 284, and the length of the model's name at 12. The name in the stock request,
;; which the guest serves at once, has 9 letters.

;; The result of `begin` at the first attempt: the error `unavailable`, without a text and other fields.
(data $unavailable (i32.const 1024) "\01\00\00\00\07\00\00\00")

;; The text of the response, one letter: the attempt.
(data $fragment (i32.const 504) "\02\00\00\00\00\00\00\00" "\00\00\00\00\28\00\00\00\01\00\00\00")

(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (local $attempt i32)
  (local.set $attempt (i32.load offset=284 (local.get $arguments)))
  (if (i32.and
        (i32.eq (local.get $attempt) (i32.const 1))
        (i32.ne (i32.load offset=12 (local.get $arguments)) (i32.const 9)))
    (then (return (i32.const 1024))))
  (i32.store8 (i32.const 40) (i32.add (i32.const 48) (local.get $attempt)))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))
