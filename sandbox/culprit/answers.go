// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// answersCap is more than any search writes down.
const answersCap = 4 << 20

// answers are those of one search, in a file.
type answers struct {
	known map[string]Answer
	file  string
}

// readAnswers reads what an earlier run of the same search was answered: of the same node, with
// the same contents of the same generations, the same checks and the same machine. dir is the
// cache's.
func (n *Node) readAnswers(dir string, good, bad int) (*answers, error) {
	question := []any{n.From.Ref().String(), n.Name, n.Checks, n.Box.Memory, n.Box.Cards, n.Box.Disk}
	for _, e := range n.kept[good : bad+1] {
		question = append(question, e.Generation, e.Node.Overlay, e.Node.Layer)
	}
	data, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	a := &answers{known: map[string]Answer{}, file: filepath.Join(dir, "bisect", digest.Hex(digest.Of(data))[:24]+".json")}
	data, err = ownfiles.ReadPublic(a.file, answersCap)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a.known)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answers of an earlier run (remove the file to begin again): %s: %w", a.file, err)
	}
	return a, nil
}

// save writes the answers down.
func (a *answers) save() error {
	data, err := json.MarshalIndent(a.known, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.file), 0o755); err != nil {
		return err
	}
	return durable.WriteFile(a.file, append(data, '\n'), 0o644)
}

// forget removes the file: the search has ended, and another run asks again.
func (a *answers) forget() error {
	if err := os.Remove(a.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
