// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"errors"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// rules hold the checks that a book adds to those of package oci/trust/rescue: once, and not for
// ever. Tests take some out, and want an attack to succeed.
type rules struct {
	book  check.List[found]   // a book that is there is taken for this one
	offer check.List[offered] // a statement is looked at
	used  check.List[*Book]   // what one that is obeyed changes
	open  check.List[moment]  // what was opened is open
}

// found is a book, and the boot that it was found in.
type found struct {
	*Book
	boot string
}

// offered is a statement by its digest, and the book of before.
type offered struct {
	*Book
	digest string
}

// moment holds an opened statement, and the kernel's count.
type moment struct {
	*Open
	up time.Duration
}

// errOver is for what is open no more, or in another boot.
var errOver = errors.New("it is over")

var whole = rules{
	book: check.List[found]{{Name: "book: of this boot", OK: func(f found) error { return unless(f.Boot == f.boot, errOver) }}},
	offer: check.List[offered]{
		{Name: "offer: it is new", OK: func(o offered) error {
			return unless(o.digest != o.Last && !slices.Contains(o.Wrong, o.digest), ErrKnown)
		}},
	},
	used: check.List[*Book]{{Name: "used: another code is shown from now on", OK: func(b *Book) error { b.Code = spec.NewCode(); return nil }}},
	open: check.List[moment]{
		{Name: "open: since this boot", OK: func(m moment) error { return unless(m.up >= m.From, errOver) }},
		{Name: "open: by the kernel's count", OK: func(m moment) error { return unless(m.up < m.Until, errOver) }},
	},
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}
