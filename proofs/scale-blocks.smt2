; Scale blocks: ceil covers every element, and a rank may keep the checkpoint's blocks exactly when
; its shard does not begin inside a block and reach over its end.

; formula blocks of plan::scales::axis: blocks of g that cover n
(define-fun blocks ((n Int) (g Int)) Int
  (ite (= (mod n g) 0) (div n g) (+ (div n g) 1)))

; formula straddles of plan::scales::local_block: a shard that the checkpoint's blocks cannot serve
(define-fun straddles ((start Int) (len Int) (g Int)) Bool
  (and (> len 0) (not (= (mod start g) 0)) (> (+ (mod start g) len) g)))

; lemma blocks-cover: Every element has a scale: its block's number is below the number of blocks.
(push)
(declare-const n Int) (declare-const g Int) (declare-const c Int)
(assert (and (> g 0) (<= 0 c) (< c n)))
(assert (not (and (<= 0 (div c g)) (< (div c g) (blocks n g)))))
(check-sat) ; unsat
(pop)

; lemma blocks-are-needed: No block is without an element.
(push)
(declare-const n Int) (declare-const g Int) (declare-const b Int)
(assert (and (> g 0) (>= n 0) (<= 0 b) (< b (blocks n g))))
(assert (not (< (* b g) n)))
(check-sat) ; unsat
(pop)

; lemma floor-blocks-miss: Counting blocks by floor division leaves elements without a scale.
(push)
(declare-const n Int) (declare-const g Int) (declare-const c Int)
(assert (and (> g 0) (<= 0 c) (< c n) (< (div c g) (blocks n g))))
(assert (not (< (div c g) (div n g))))
(check-sat) ; sat
(pop)

; lemma padded-blocks-hold-the-logical-ones: A padded axis has at least the blocks of the logical one.
(push)
(declare-const n Int) (declare-const m Int) (declare-const g Int)
(assert (and (> g 0) (<= 0 n m)))
(assert (not (<= (blocks n g) (blocks m g))))
(check-sat) ; unsat
(pop)

; lemma aligned-start-keeps-blocks: From an aligned start on, local block b is the checkpoint's block start div g + b.
(push)
(declare-const start Int) (declare-const len Int) (declare-const g Int) (declare-const c Int)
(assert (and (> g 0) (>= start 0) (<= 0 c) (< c len) (= (mod start g) 0)))
(assert (not (and (not (straddles start len g)) (= (div (+ start c) g) (+ (div start g) (div c g))))))
(check-sat) ; unsat
(pop)

; lemma inner-shard-has-one-block: A shard inside one block finds one scale, that of its start.
(push)
(declare-const start Int) (declare-const len Int) (declare-const g Int) (declare-const c Int)
(assert (and (> g 0) (>= start 0) (<= 0 c) (< c len)))
(assert (<= (+ (mod start g) len) g))
(assert (not (and (not (straddles start len g)) (= (div (+ start c) g) (div start g)) (= (div c g) 0))))
(check-sat) ; unsat
(pop)

; lemma straddling-needs-two-scales: A shard that straddles has two elements of one local block in two blocks of the checkpoint.
(push)
(declare-const start Int) (declare-const len Int) (declare-const g Int) (declare-const c Int)
(assert (and (> g 0) (>= start 0) (straddles start len g)))
; The first element behind the block in which the shard begins.
(assert (= c (- g (mod start g))))
(assert (not (and (< 0 c len) (= (div c g) (div 0 g))
                  (not (= (div (+ start c) g) (div start g))))))
(check-sat) ; unsat
(pop)

; lemma straddling-is-exact: Where a shard does not straddle, elements of one local block lie in one block of the checkpoint.
(push)
(declare-const start Int) (declare-const len Int) (declare-const g Int) (declare-const c Int) (declare-const d Int)
(declare-const q Int) (declare-const o Int) (declare-const b Int) (declare-const v Int) (declare-const w Int)
; Quotients by name: start = q g + o, and c and d in local block b.
(assert (and (> g 0) (>= q 0) (= start (+ (* q g) o)) (<= 0 o) (< o g) (= (mod start g) o)))
(assert (and (= c (+ (* b g) v)) (<= 0 v) (< v g) (= d (+ (* b g) w)) (<= 0 w) (< w g) (>= b 0)))
(assert (and (< c len) (< d len) (not (straddles start len g))))
; Block q + b of the checkpoint holds both.
(assert (not (and (<= (* (+ q b) g) (+ start c)) (< (+ start c) (* (+ q b 1) g))
                  (<= (* (+ q b) g) (+ start d)) (< (+ start d) (* (+ q b 1) g)))))
(check-sat) ; unsat
(pop)

; lemma finer-blocks-serve: A finer block that divides both the checkpoint's block and the start has one scale, wherever the shard begins.
(push)
(declare-const start Int) (declare-const g Int) (declare-const c Int) (declare-const fine Int)
(declare-const m Int) (declare-const k Int) (declare-const b Int) (declare-const v Int)
(declare-const q Int) (declare-const r Int)
(assert (and (> fine 0) (> m 0) (>= k 0) (= g (* fine m)) (= start (* fine k)) (= (mod start fine) 0)))
; An element of fine local block b; the checkpoint's block q that holds fine block k + b.
(assert (and (>= b 0) (= c (+ (* b fine) v)) (<= 0 v) (< v fine)))
(assert (and (= (+ k b) (+ (* q m) r)) (<= 0 r) (< r m)))
(assert (not (and (<= (* q g) (+ start c)) (< (+ start c) (* (+ q 1) g)) (not (straddles start (+ c 1) fine)))))
(check-sat) ; unsat
(pop)
