// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/caisson-os/caisson/internal/digest"
)

// TestGolden: an image is cut as 0.9.0 did, else no chunk of an older image would be had.
func TestGolden(t *testing.T) {
	var image []byte
	for i := range uint64(1 << 15) { // a MiB that does not repeat
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		image = append(image, sum[:]...)
	}
	var index bytes.Buffer
	if err := WriteIndex(&index, bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	const want = "sha256:8e2cd502fad88dab07fdfd75f4a3c9e7d09cd030e0d8be1d8233f7ac6ddf6331"
	if got := digest.Of(index.Bytes()); got != want {
		t.Errorf("the index is %s, want %s", got, want)
	}
}
