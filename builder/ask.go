// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/spec"
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
		if dir := b.done[s.name].dir; s.fill != nil && dir != "" { // a layer of an earlier release may have fewer images
			trees = append([]string{filepath.Join(dir, "tree")}, trees...)
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
			limited, end := context.WithTimeout(ctx, b.patience)
			err := r.Run(limited, root.Command{Args: argv})
			end()
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
		b.say(Event{Step: stepAgent, State: "note", Text: fmt.Sprintf("the layer's programs looked at the first %d files "+
			"that nodes get; nodes ask about the others", mostAsked)})
	}
	return errors.Join(refused...)
}

// Asks reports whether a program is asked about one of the files.
func Asks(written [][]Text) bool {
	asked := func(f Text) bool { argv, _ := configcheck.Question(f.Path, f.Content); return argv != nil }
	return slices.ContainsFunc(written, func(files []Text) bool { return slices.ContainsFunc(files, asked) })
}

// AskKept asks as a build does, of a layer that was built before: o.Written may be newer. It needs
// root and the trees that the cache has of the layer's images; without them it returns why it
// has not asked.
func AskKept(ctx context.Context, images []spec.Image, o Options) (why string, err error) {
	switch {
	case !Asks(o.Written):
		return "", nil
	case root.Capable() != nil:
		return "that takes root", nil
	case o.CacheDir == "" || !exists(filepath.Join(o.CacheDir, "steps")):
		return "the layer was not built with this cache", nil
	}
	b := &build{options: o, done: map[string]made{}, patience: answerWait}
	wait, end := context.WithTimeout(ctx, askWait)
	defer end()
	release, err := b.open(wait)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return "a build is using the cache", nil
	}
	if err != nil {
		return "", err
	}
	defer release()
	for _, image := range images {
		found, err := filepath.Glob(filepath.Join(b.options.CacheDir, "steps", image.Name+"-*"))
		if err != nil {
			return "", err
		}
		for _, dir := range found {
			var m made
			data, err := os.ReadFile(filepath.Join(dir, madeName))
			if err == nil && json.Unmarshal(data, &m) == nil && m.Image != nil && m.Image.Digest == image.Digest &&
				exists(filepath.Join(dir, "tree")) {
				b.done[image.Name] = made{dir: dir}
			}
		}
		if b.done[image.Name].dir == "" {
			return "the cache has no more of the layer", nil
		}
	}
	return "", b.ask(ctx)
}

// askWait is how long [AskKept] waits for a build, and answerWait a build for the answer to one
// question, which an emulator may have to find.
const (
	askWait    = 10 * time.Second
	answerWait = 2 * time.Minute
)

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
