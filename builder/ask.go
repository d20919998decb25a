// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/configcheck"
)

// mostAsked is how many texts are asked about in a build; nodes ask about the rest.
const mostAsked = 1000

// Text is a file that nodes write over a layer, and where the site says so.
type Text struct{ Path, Content, At string }

// ask has the layer's own programs look at what nodes write over it. The files of one node
// stand at their places while they do, since they may name each other; what a program writes
// is thrown away. A layer for another processor may have no program that runs here: then
// nothing is said.
func (b *build) ask(ctx context.Context) error {
	var trees []string
	for _, s := range steps {
		if tree := filepath.Join(b.done[s.name].dir, "tree"); s.fill != nil && exists(tree) {
			trees = append([]string{tree}, trees...)
		}
	}
	asked := map[Text]bool{}
	var refused []error
	for _, files := range b.options.Written {
		r := &root.Root{Work: b.tmp}
		for _, f := range files {
			argv, verdict := configcheck.Question(f.Path, f.Content)
			key := Text{Path: f.Path, Content: f.Content}
			if argv == nil || asked[key] || len(asked) == mostAsked {
				continue
			}
			asked[key] = true
			if r.Lowers == nil {
				dir, err := over(b.tmp, files)
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir) // the next build clears what is left
				r.Lowers = append([]string{dir}, trees...)
			}
			if at, err := r.Follow(argv[0]); err != nil {
				return err
			} else if _, err := r.Lstat(at); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			err := r.Run(ctx, root.Command{Args: argv})
			exit := new(root.ExitError)
			switch {
			case err == nil:
			case !errors.As(err, &exit):
				return fmt.Errorf("ask %s about %s: %w", argv[0], f.Path, err)
			default:
				if err := verdict(exit.Output); err != nil {
					refused = append(refused, fmt.Errorf("%s: %s: %w", f.At, f.Path, err))
				}
			}
		}
	}
	if len(asked) == mostAsked {
		b.say(Event{Step: stepAgent, State: "note", Text: fmt.Sprintf("the layer's programs looked at the first %d files that nodes get; nodes ask about the others", mostAsked)})
	}
	return errors.Join(refused...)
}

// over makes a tree of what a node writes, with what is the machine's own that a unit may name.
func over(work string, files []Text) (string, error) {
	dir, err := os.MkdirTemp(work, "over-")
	if err != nil {
		return "", err
	}
	own := []Text{{Path: "/etc/machine-id", Content: "0123456789abcdef0123456789abcdef\n"}, {Path: "/etc/hostname", Content: "node\n"}}
	for _, f := range append(own, files...) {
		at := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(at, []byte(f.Content), 0o440); err != nil {
			return "", err
		}
	}
	return dir, os.Chmod(dir, 0o755)
}
