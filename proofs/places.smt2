; Where elements lie: in every layout below two elements have two places, for any number of tiles; that row-major and
; 128x4 places lie inside rows * columns, too, is proved here, of the others tested.

; formula linear of layout::grid::index: row-major
(define-fun linear ((r Int) (c Int) (cols Int)) Int (+ (* r cols) c))

; formula tiled-128x4 of layout::grid::index: scales of 128x4
(define-fun tiled-128x4 ((r Int) (c Int) (cols Int)) Int
  (+ (* (div r 128) (* (div cols 4) 512)) (* (mod r 32) 16) (* (div (mod r 128) 32) 4)
     (* (div c 4) 512) (mod c 4)))

; formula tiled-8x4 of layout::grid::index: scales of 8x4
(define-fun tiled-8x4 ((r Int) (c Int) (cols Int)) Int
  (+ (* (* (div r 8) 8) cols) (* (mod r 8) 4) (* (div c 4) 32) (mod c 4)))

; formula n32k4 of layout::grid::index: scales of aiter-n32k4
(define-fun n32k4 ((r Int) (c Int) (cols Int)) Int
  (+ (* (* (div r 32) 32) cols) (* (mod r 32) 4) (* (div c 4) 128) (mod c 4)))

; formula shuffle of layout::grid::index: bytes of shuffle-16x16
(define-fun shuffle ((r Int) (c Int) (cols Int)) Int
  (+ (* (* (div r 16) 16) cols) (* (mod r 16) 16) (* (* (div c 16) 16) 16) (mod c 16)))

; lemma row-major-stays-inside: A row-major index lies inside rows * stride.
(push)
(declare-const r Int) (declare-const c Int) (declare-const rows Int) (declare-const cols Int)
(assert (and (<= 0 r) (< r rows) (<= 0 c) (< c cols)))
(assert (not (and (<= 0 (linear r c cols)) (< (linear r c cols) (* rows cols)))))
(check-sat) ; unsat
(pop)

; lemma row-major-is-injective: Two elements have two row-major indices.
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const cols Int)
(assert (and (<= 0 c) (< c cols) (<= 0 d) (< d cols) (<= 0 r) (<= 0 s)))
(assert (= (linear r c cols) (linear s d cols)))
(assert (not (and (= r s) (= c d))))
(check-sat) ; unsat
(pop)

; lemma tiles-of-128x4-are-injective: Two scales have two places in tiles of 128x4.
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const tiles Int) (declare-const cols Int)
(assert (and (> tiles 0) (= cols (* 4 tiles))))
(assert (and (<= 0 c) (< c cols) (<= 0 d) (< d cols) (<= 0 r) (<= 0 s)))
(assert (= (tiled-128x4 r c cols) (tiled-128x4 s d cols)))
(assert (not (and (= r s) (= c d))))
(check-sat) ; unsat
(pop)

; lemma tiles-of-8x4-are-injective: Two scales have two places in tiles of 8x4.
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const tiles Int) (declare-const cols Int)
(assert (and (> tiles 0) (= cols (* 4 tiles))))
(assert (and (<= 0 c) (< c cols) (<= 0 d) (< d cols) (<= 0 r) (<= 0 s)))
(assert (= (tiled-8x4 r c cols) (tiled-8x4 s d cols)))
(assert (not (and (= r s) (= c d))))
(check-sat) ; unsat
(pop)

; lemma tiles-of-32x4-are-injective: Two scales have two places in tiles of 32x4 (aiter-n32k4).
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const tiles Int) (declare-const cols Int)
(assert (and (> tiles 0) (= cols (* 4 tiles))))
(assert (and (<= 0 c) (< c cols) (<= 0 d) (< d cols) (<= 0 r) (<= 0 s)))
(assert (= (n32k4 r c cols) (n32k4 s d cols)))
(assert (not (and (= r s) (= c d))))
(check-sat) ; unsat
(pop)

; lemma shuffled-bytes-of-a-slab-are-injective: Two bytes of the same sixteen rows have two places in shuffle-16x16.
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const cols Int)
(assert (and (<= 0 c) (<= 0 d) (<= 0 r) (<= 0 s) (= (div r 16) (div s 16))))
(assert (= (shuffle r c cols) (shuffle s d cols)))
(assert (not (and (= r s) (= c d))))
(check-sat) ; unsat
(pop)

; lemma shuffled-slabs-are-apart: Bytes of different sixteens of rows never share a place in shuffle-16x16.
(push)
(declare-const r Int) (declare-const c Int) (declare-const s Int) (declare-const d Int) (declare-const tiles Int)
(assert (and (<= 0 c) (<= 0 d) (<= 0 r) (<= 0 s) (< c (* 16 tiles)) (< d (* 16 tiles))))
(assert (< (div r 16) (div s 16)))
(assert (= (shuffle r c (* 16 tiles)) (shuffle s d (* 16 tiles))))
(check-sat) ; unsat
(pop)

; lemma tiles-of-128x4-stay-inside: A place in whole tiles of 128x4 lies inside rows * columns.
(push)
(declare-const r Int) (declare-const c Int) (declare-const down Int) (declare-const tiles Int)
; Rows are 128 down, columns 4 tiles.
(assert (and (> tiles 0) (<= 0 r) (< (div r 128) down) (<= 0 c) (< c (* 4 tiles))))
(assert (not (and (<= 0 (tiled-128x4 r c (* 4 tiles))) (< (tiled-128x4 r c (* 4 tiles)) (* down 512 tiles)))))
(check-sat) ; unsat
(pop)
