// SPDX-License-Identifier: Apache-2.0

package module

import (
	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/spec"
)

// identity returns a value in a few characters: what must not or need not be
// shown still shows when it changes.
func identity(v any) string {
	data, err := spec.Encode(v)
	if err != nil {
		panic(err) // plain data
	}
	return digest.Short(data)
}
