// SPDX-License-Identifier: Apache-2.0

// Package blank tells whether a disk is empty, so that a file system may be made on it.
//
// Empty means zeros, not the absence of what is known: at the beginning and the end,
// where tables, file systems and what stacks disks keep their signatures, and in samples
// between, where a member of a hardware RAID has its data. Signatures that are known
// only name what was found. The package reads and decides nothing else.
package blank

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	edge    = 4 << 20  // read at both ends
	samples = 64       // evenly between them
	sample  = 64 << 10 // bytes of each
)

// Disk returns nil where a disk of size bytes is empty, else what is on it. Who cannot
// read a disk does not know that it is empty.
func Disk(disk io.ReaderAt, size int64) error {
	if size < 2*edge {
		return fmt.Errorf("it has %d bytes, which is less than is looked at", size)
	}
	head, err := span(disk, 0, edge)
	if err != nil {
		return err
	}
	tail, err := span(disk, size-edge, edge)
	if err != nil {
		return err
	}
	if what := named(head, tail); what != "" {
		return fmt.Errorf("it is not empty: %s", what)
	}
	if err := zeros(head, 0); err != nil {
		return err
	}
	if err := zeros(tail, size-edge); err != nil {
		return err
	}
	step := (size - 2*edge) / samples
	for i := range int64(samples) {
		at := (edge + i*step) &^ 4095
		data, err := span(disk, at, min(sample, size-edge-at))
		if err != nil {
			return err
		}
		if err := zeros(data, at); err != nil {
			return err
		}
	}
	return nil
}

// ErrUnreadable is returned for a disk that cannot be read: what is on it nobody knows.
var ErrUnreadable = errors.New("it cannot be read")

// What says in words what is on a disk or a partition.
func What(disk io.ReaderAt, size int64) string {
	err := Disk(disk, size)
	if err == nil {
		return "nothing"
	}
	return strings.TrimPrefix(err.Error(), "it is not empty: ")
}

func span(disk io.ReaderAt, at, n int64) ([]byte, error) {
	data := make([]byte, max(n, 0))
	if _, err := disk.ReadAt(data, at); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return data, nil
}

func zeros(data []byte, at int64) error {
	if rest := bytes.TrimLeft(data, "\x00"); len(rest) > 0 {
		return fmt.Errorf("it is not empty: something at byte %d", at+int64(len(data)-len(rest)))
	}
	return nil
}
