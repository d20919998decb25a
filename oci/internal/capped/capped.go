// SPDX-License-Identifier: Apache-2.0

// Package capped reads what others send into memory, up to a limit that is
// counted while reading: what a sender announces is never relied on.
//
// It imports the standard library only.
package capped

import (
	"bytes"
	"io"
)

// Read reads body, at most one byte more than limit, by which the caller sees
// that there is more. Memory for announced bytes is taken at once when they are
// within the limit; a negative number is an unknown size.
func Read(body io.Reader, announced, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if announced >= 0 && announced <= limit {
		b.Grow(int(announced) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(body, limit+1))
	return b.Bytes(), err
}
