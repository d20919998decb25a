// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// DecodeFile reads a file that caisson keeps beside a site: JSON of one kind, spaced and ordered
// as it may be after somebody merged it. It is written again, and what its writer does not know
// would be lost, so a key of a later release is refused, at any depth; so is one that stands
// twice, or in another case. The caller caps the size.
func DecodeFile(data []byte, kind string, doc any) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch {
	case head.APIVersion == "" && head.Kind == "":
		return fmt.Errorf("it is not a %s of %s", kind, APIVersion)
	case head.APIVersion != APIVersion || head.Kind != kind:
		return fmt.Errorf("it is a %.40q of %.40q, not a %s of %s", head.Kind, head.APIVersion, kind, APIVersion)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return err
	}
	f := filter{noted: map[string]bool{}}
	if _, err := f.value(nil, compact.Bytes(), reflect.TypeOf(doc), ""); err != nil {
		return err
	}
	if f.unknown != nil {
		return unknownKeys(f.unknown)
	}
	return json.Unmarshal(data, doc)
}

// unknownKeys are keys of a document that this release does not know.
type unknownKeys []string

func (k unknownKeys) Error() string { return fmt.Sprintf("it has %q of a later release", []string(k)) }

// Hint says how to mend it.
func (unknownKeys) Hint() string { return "use the release that wrote it, or a later one" }

// OfLaterRelease reports whether a document was refused for keys of a later release.
func OfLaterRelease(err error) bool {
	var keys unknownKeys
	return errors.As(err, &keys)
}
