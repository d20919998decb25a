// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// ReadCapped reads body, at most one byte more than limit, by which the caller sees
// that there is more. Memory for announced bytes is taken at once when they are
// within the limit; a negative number is an unknown size.
func ReadCapped(body io.Reader, announced, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if announced >= 0 && announced <= limit {
		b.Grow(int(announced) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(body, limit+1))
	return b.Bytes(), err
}

// ReadFileCapped reads a file below root; one of more than limit bytes is an error.
func ReadFileCapped(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := ReadCapped(f, -1, limit)
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}
