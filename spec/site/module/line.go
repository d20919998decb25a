// SPDX-License-Identifier: Apache-2.0

package module

import (
	"crypto/sha256"
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

// identity returns a value in a few characters: what must not or need not be
// shown still shows when it changes.
func identity(v any) string {
	data, err := spec.Encode(v)
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("sha256:%x", sum[:6])
}
