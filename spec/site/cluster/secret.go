// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
)

// SecretValue returns an entry of a Secret, as kubectl get prints it with -o json. No error
// quotes what the Secret has.
func SecretValue(data []byte, key string) ([]byte, error) {
	var o struct {
		Kind string            `json:"kind"`
		Data map[string][]byte `json:"data"`
	}
	if json.Unmarshal(data, &o) != nil || o.Kind != "Secret" {
		return nil, errors.New("what was read is not a Secret")
	}
	value, ok := o.Data[key]
	if !ok {
		return nil, fmt.Errorf("the Secret has no key %q", key)
	}
	return value, nil
}
