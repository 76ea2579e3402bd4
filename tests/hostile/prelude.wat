;; A healthy adapter by hand. Every hostile guest beside this file is this one with something
;; replaced: a form below "Defaults" is left out if the guest defines its identifier ($next, $memory
;; ...) itself.
;;
;; A guest is a list of forms, its imports first. One that opens with "(module" stands alone. Where
;; it needs another world than `provider`, a `.wit` file of its name defines one called `guest`.
;;
;; Layouts by the canonical ABI: a result has its discriminant at 0 and its payload at 4. Of a step,
;; the payload begins 4 further on: emit = 1, ptr, len; send = 0, method, path, headers, body (ptr,
;; len each); wait = 2, ms; done = 3. An event takes 112 bytes: its discriminant at 0, its payload
;; at 8.

(import "[export]weir:plugin/adapter@0.1.0" "[resource-new]exchange" (func $resource_new (param i32) (result i32)))
(import "[export]weir:plugin/adapter@0.1.0" "[resource-drop]exchange" (func $resource_drop (param i32)))
(import "weir:plugin/log@0.1.0" "write" (func $log (param $level i32) (param $text i32) (param $length i32)))

;; Defaults

(memory $memory (export "memory") 2)

(global $free (mut i32) (i32.const 65536))

(global $turn (mut i32) (i32.const 0))

;; Texts: name at 16, version at 32, answer at 40, method at 48, path at 56.
(data $texts (i32.const 16) "hostile\00\00\00\00\00\00\00\00\000.1.0\00\00\00ok\00\00\00\00\00\00POST\00\00\00\00/v1/completions")

;; What `describe` returns, at 80: name, version, bearer, chat and images, no options.
(data $description (i32.const 80) "\10\00\00\00\07\00\00\00\20\00\00\00\05\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01\01\00\00\00\00\00\00\00\00\00\00")

;; What `begin` returns, at 128: ok, then the handle.
(data $begun (i32.const 128) "\00\00\00\00\00\00\00\00")

;; What `next` returns, at 160: ok, emit, the three events at 256.
(data $step (i32.const 160) "\00\00\00\00\01\00\00\00\00\01\00\00\03\00\00\00")

;; The second event: text, ptr 40, len 2. (The first, the start of a text block, is all zeros.)
(data $second_event (i32.const 368) "\01\00\00\00\00\00\00\00\28\00\00\00\02\00\00\00")

;; The third event: finish, stop.
(data $third_event (i32.const 480) "\0a\00\00\00\00\00\00\00\00\00\00\00")

;; What `next` returns in the end, at 640: ok, done.
(data $done (i32.const 640) "\00\00\00\00\03\00\00\00")

;; What `head`, `body` and `end` return, at 704: ok, nothing.
(data $nothing (i32.const 704) "\00\00\00\00\00\00\00\00\00\00\00\00")

(func $describe (export "weir:plugin/adapter@0.1.0#describe") (result i32)
  (i32.const 80))

(func $begin (export "weir:plugin/adapter@0.1.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (i32.store (i32.const 132) (call $resource_new (i32.const 1)))
  (i32.const 128))

(func $next (export "weir:plugin/adapter@0.1.0#[method]exchange.next") (param $self i32) (result i32)
  (global.set $turn (i32.add (global.get $turn) (i32.const 1)))
  (select (i32.const 160) (i32.const 640) (i32.eq (global.get $turn) (i32.const 1))))

(func $head (export "weir:plugin/adapter@0.1.0#[method]exchange.head")
  (param $self i32) (param $status i32) (param $headers i32) (param $count i32) (result i32)
  (i32.const 704))

(func $body (export "weir:plugin/adapter@0.1.0#[method]exchange.body")
  (param $self i32) (param $bytes i32) (param $length i32) (result i32)
  (i32.const 704))

(func $end (export "weir:plugin/adapter@0.1.0#[method]exchange.end") (param $self i32) (result i32)
  (i32.const 704))

;; Never frees. Grows when it must and traps when it cannot.
(func $realloc (export "cabi_realloc")
  (param $old i32) (param $old_size i32) (param $align i32) (param $new_size i32) (result i32)
  (local $start i32)
  (local.set $start (i32.and (i32.add (global.get $free) (i32.const 15)) (i32.const -16)))
  (global.set $free (i32.add (local.get $start) (local.get $new_size)))
  (if (i32.gt_u (global.get $free) (i32.shl (memory.size) (i32.const 16)))
    (then
      (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $new_size) (i32.const 16)) (i32.const 1))) (i32.const -1))
        (then unreachable))))
  (memory.copy (local.get $start) (local.get $old) (local.get $old_size))
  (local.get $start))
