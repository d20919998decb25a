// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// BlobPath is where a layout keeps the content of a valid digest.
func BlobPath(digest string) string {
	return "blobs/sha256/" + digests.Hex(digest)
}

// ParseLayoutIndex reads a layout's index.json: an index without a cap on its
// entries, whose media type may be absent.
func ParseLayoutIndex(raw []byte) (*Index, error) {
	var x Index
	if err := strict.Decode(raw, &x); err != nil {
		return nil, &DamagedError{fmt.Errorf("index.json: %w", err)}
	}
	if x.MediaType != "" && x.MediaType != MediaTypeIndex {
		return nil, &DamagedError{fmt.Errorf("index.json has the media type %q", x.MediaType)}
	}
	for i, d := range x.Manifests {
		if err := whole.checkDescriptor(d, fmt.Sprintf("index.json: descriptor %d", i)); err != nil {
			return nil, err
		}
	}
	return &x, nil
}

// DamagedError is the error for a layout whose files are not what they were: cut,
// altered or of another program. Asking again does not help.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what an operator can do about it.
func (e *DamagedError) Hint() string {
	return "put back a copy of the layout, or build and publish into a new directory"
}
