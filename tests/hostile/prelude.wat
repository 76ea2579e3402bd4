;; A healthy, hand-written adapter. Each hostile guest beside this file replaces a part of it: a form below
;; "Defaults" is left out if the guest defines its identifier ($begin, $memory ...) itself. Most attacks are in
;; `begin`, because the host calls it whenever it loads a guest.
;;
;; A guest is a list of forms, imports first. A guest that opens with "(module" stands alone. If a guest needs another
;; world than `provider`, a `.wit` file of its name defines the world `guest`.
;;
;; Layouts by the canonical ABI. A text or a list is its address and its length, 4 bytes each.
;;
;; - The result of `describe` takes 76 bytes: name at 0, version at 8, dialect at 16, credential at 24
;;   (bearer = 0; its payload at 28), capabilities at 36, options at 44, request headers at 52,
;;   response headers at 60, path prefixes at 68.
;; - A result has its discriminant at 0 (ok = 0, error = 1) and its payload at 4. The result of `configure`
;;   takes 20 bytes: a list, or the name at 4 and the reason at 12. The results of `begin`, `next` and `head`
;;   take 60: a failure's kind is at 4, its text at 8.
;; - The payload of `begin` has the exchange at 0, the step at 4, the ignored names at 40.
;;   From the start of the result: 4, 8, 44.
;; - A step takes 36 bytes, its payload at 4: send = 0, method, path, headers and body at 4, 12, 20 and
;;   28 (a header takes 16 bytes, a part of a body 12); emit = 1, list; wait = 2, milliseconds; done = 3.
;; - The result of `body` and `end` takes 68 bytes: the events at 0, then at 8 whether there is a failure.
;; - An event takes 120 bytes and is aligned to 8, its payload at 8: block-start = 1, index, then the
;;   block at 12 (text = 0); fragment = 2, index, then the text at 12; block-end = 7, index;
;;   finish = 12, reason (stop = 0).

(import "[export]weir:plugin/adapter@0.2.0" "[resource-new]exchange" (func $resource_new (param i32) (result i32)))
(import "[export]weir:plugin/adapter@0.2.0" "[resource-drop]exchange" (func $resource_drop (param i32)))
(import "weir:plugin/log@0.2.0" "write" (func $log (param $level i32) (param $text i32) (param $length i32)))

;; Defaults

(memory $memory (export "memory") 2)

(global $free (mut i32) (i32.const 65536))

;; Texts: name at 16, version at 32, answer at 40, method at 48, path at 56, dialect at 72,
;; capabilities at 88 and 96, path prefix at 104.
(data $texts (i32.const 16) "hostile\00\00\00\00\00\00\00\00\000.1.0\00\00\00ok\00\00\00\00\00\00POST\00\00\00\00/v1/completions\00openai-chat\00\00\00\00\00chat\00\00\00\00images\00\00/")

;; Lists of texts: two capabilities at 112, one path prefix at 128.
(data $lists (i32.const 112) "\58\00\00\00\04\00\00\00" "\60\00\00\00\06\00\00\00" "\68\00\00\00\01\00\00\00")

;; The result of `describe`, at 144: name, version, dialect; bearer; capabilities; no options, no
;; headers; path prefixes.
(data $description (i32.const 144)
  "\10\00\00\00\07\00\00\00" "\20\00\00\00\05\00\00\00" "\48\00\00\00\0b\00\00\00"
  "\00\00\00\00\00\00\00\00\00\00\00\00"
  "\70\00\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
  "\80\00\00\00\01\00\00\00")

;; The result of `configure`, at 224: ok, no bytes.
(data $configured (i32.const 224) "\00\00\00\00\00\00\00\00\00\00\00\00")

;; The result of `begin`, at 256: ok, then the exchange, the step, no ignored names.
(data $begun (i32.const 256) "\00\00\00\00\00\00\00\00")

;; The step in it, at 264: emit, the four events at 384.
(data $step (i32.const 264) "\01\00\00\00\80\01\00\00\04\00\00\00")

;; The result of `next`, at 320: ok, done.
(data $done (i32.const 320) "\00\00\00\00\03\00\00\00")

;; The first event: block-start, index 0, text.
(data $block_start (i32.const 384) "\01\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00")

;; The second event: fragment, index 0, ptr 40, len 2.
(data $fragment (i32.const 504) "\02\00\00\00\00\00\00\00" "\00\00\00\00\28\00\00\00\02\00\00\00")

;; The third event: block-end, index 0.
(data $block_end (i32.const 624) "\07\00\00\00\00\00\00\00" "\00\00\00\00")

;; The fourth event: finish, stop.
(data $finish (i32.const 744) "\0c\00\00\00\00\00\00\00" "\00\00\00\00")

;; The result of `head`, `body` and `end`, at 896: all zeros, for ok, no events and no failure.
(data $nothing (i32.const 896) "\00\00\00\00\00\00\00\00\00\00\00\00")

(func $describe (export "weir:plugin/adapter@0.2.0#describe") (result i32)
  (i32.const 144))

(func $configure (export "weir:plugin/adapter@0.2.0#configure") (param $options i32) (param $count i32) (result i32)
  (i32.const 224))

(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.const 256))

(func $next (export "weir:plugin/adapter@0.2.0#[method]exchange.next") (param $self i32) (result i32)
  (i32.const 320))

(func $head (export "weir:plugin/adapter@0.2.0#[method]exchange.head")
  (param $self i32) (param $status i32) (param $headers i32) (param $count i32) (result i32)
  (i32.const 896))

(func $body (export "weir:plugin/adapter@0.2.0#[method]exchange.body")
  (param $self i32) (param $bytes i32) (param $length i32) (result i32)
  (i32.const 896))

(func $end (export "weir:plugin/adapter@0.2.0#[method]exchange.end") (param $self i32) (result i32)
  (i32.const 896))

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
