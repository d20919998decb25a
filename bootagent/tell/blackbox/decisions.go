// SPDX-License-Identifier: Apache-2.0

// Each decision of a node can be noted with the facts that it was made by, for operators who have
// to find out why a machine did what it did: the same facts lead package decide to the same step on
// any machine. It is noted only where the file is there. The loader makes it for the word
// "caisson.decisions" of the kernel's command line; it is gone with the boot. What cannot be noted
// changes nothing.

package blackbox

import (
	"encoding/json"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/decide"
)

// DecisionsWord is that of the kernel's command line for which decisions are noted.
const DecisionsWord = "caisson.decisions"

// Decision is one line of the file, in JSON.
type Decision struct {
	Step  string       `json:"step"` // name of the transition
	Facts decide.Facts `json:"facts"`
}

// decisionsLimit caps the file, in bytes: some thousand decisions.
const decisionsLimit = 4 << 20

// BeginDecisions makes the file, in a directory that is there, where the words of a command line ask for that.
func BeginDecisions(file string, words []string) error {
	if !slices.Contains(words, DecisionsWord) {
		return nil
	}
	return os.WriteFile(file, nil, 0o600)
}

// DecisionsInto returns what notes a decision in a file, where it is there and has room.
func DecisionsInto(file string) decide.Observer {
	return func(f *decide.Facts, s decide.Step) {
		out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
		if err != nil {
			return // nobody asked for notes
		}
		defer out.Close() // a note that is lost changes nothing
		if info, err := out.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > decisionsLimit {
			return
		}
		if line, err := json.Marshal(Decision{s.Name, *f}); err == nil {
			_, _ = out.Write(append(line, '\n')) // likewise
		}
	}
}
