// SPDX-License-Identifier: Apache-2.0

package say

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/spec"
)

// KeepTrace keeps the steps of a run in a file: as the first ones of this root, or else as
// the last. A trace that cannot be read is begun again, and said.
func KeepTrace(file string, steps []spec.Step, first bool, say func(format string, args ...any)) error {
	var t spec.Trace
	if first {
		t.First = steps
	} else {
		var err error
		if t, err = ReadTrace(file); err != nil {
			say("the trace of this boot starts over: %v", err)
			t = spec.Trace{}
		}
		t.Last = steps
	}
	data, err := spec.Encode(t)
	if err != nil {
		return err
	}
	return durable.WriteFile(file, data, 0o640)
}

// ReadTrace reads what KeepTrace kept, the zero value where that is nothing.
func ReadTrace(file string) (t spec.Trace, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("read trace: %w", err)
	}
	return t, nil
}
