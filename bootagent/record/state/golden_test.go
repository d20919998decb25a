// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: the state that 0.9.0 wrote is read, and written byte-equal; it has every key of
// the page, and the page every key of the types.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/state.json", Page: "../../../docs/formats/state.md", New: new(State),
		Write: func(v any) ([]byte, error) { return encode(v.(*State)) },
		Read:  func(data []byte) (any, error) { return parse(data) },
		Types: []reflect.Type{reflect.TypeFor[State](), reflect.TypeFor[Generation](), reflect.TypeFor[Fleet](), reflect.TypeFor[Trial](), reflect.TypeFor[Proof](), reflect.TypeFor[EarlyRuns]()},
		Later: func(file, key []byte) []byte {
			_, body, _ := bytes.Cut(file, []byte(`",`))
			body = golden.AddKey(body, key)
			return fmt.Appendf(nil, "%s%08x\",%s", sumField, crc32.Checksum(body, castagnoli), body)
		}})
}

// TestGoldenBoot: so is the boot record, which a soft-reboot hands to the agent of another layer.
func TestGoldenBoot(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/boot.json", Page: "../../../docs/formats/node-files.md", New: new(Boot),
		Types: []reflect.Type{reflect.TypeFor[Boot](), reflect.TypeFor[Images](), reflect.TypeFor[Live](), reflect.TypeFor[ForBoot](), reflect.TypeFor[Protection](), reflect.TypeFor[Without](),
			reflect.TypeFor[Counts](), reflect.TypeFor[Artifact](), reflect.TypeFor[TakenBack](), reflect.TypeFor[Lease]()},
	}.InFile(t, func(name string, v any) error { return SaveBoot(name, v.(*Boot)) }, func(name string) (any, error) { return LoadBoot(name) }))
}
