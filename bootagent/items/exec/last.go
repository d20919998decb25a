// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Last is the last run of a script and what it printed.
type Last struct {
	Name   string    `json:"name"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end,omitzero"` // zero: it runs, or was cut
	Result string    `json:"result"`
	Output string    `json:"output"`
}

// Last returns the last run of a wanted script. Its output may hold secrets.
func (i *Item) Last(name string) (*Last, error) {
	at := slices.IndexFunc(i.want, func(w spec.Exec) bool { return w.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("no script %q on this node", name)
	}
	s := i.script(i.want[at])
	r, err := i.history(s)
	if err != nil {
		return nil, err
	}
	if r.none() {
		return nil, fmt.Errorf("script %q has not run", name)
	}
	last := &Last{Name: name, Start: r.Start, End: r.End, Result: r.String()}
	if i.running(r) {
		last.Result = "it runs"
	}
	f, err := ownfiles.Open(filepath.Join(s.dir, logFile))
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil // it ran before caisson had the machine
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, 2*process.MaxLog))
	last.Output = strings.ToValidUTF8(string(text), "\ufffd")
	return last, err
}
