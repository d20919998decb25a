// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// rebootMark begins the line that is ours in a file which others may write, too.
const rebootMark = "caisson: "

// markReboot keeps the files by which people and programs such as kured learn that a
// machine wants to be started over: there while something waits for that, and gone
// when it is no longer true. What others have written there stays.
func (n *Node) markReboot() error {
	why, err := n.waitsWhy()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(n.path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ours string
	var lines []string
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, rebootMark) {
			ours = strings.TrimSuffix(line, "\n")
			continue
		}
		lines = append(lines, line)
	}
	if ours == why {
		return nil
	}
	if why == "" && len(lines) == 0 {
		return errors.Join(durable.Remove(n.path(paths.RebootRequired)), durable.Remove(n.path(paths.RebootReasons)))
	}
	if why != "" {
		lines = append(lines, why+"\n")
	}
	if err := durable.WriteFile(n.path(paths.RebootReasons), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(n.path(paths.RebootRequired)); err == nil {
		return nil
	}
	return durable.WriteFile(n.path(paths.RebootRequired), []byte("*** System restart required ***\n"), 0o644)
}

// awaited is a generation that a reboot is waited for, and what of it needs one.
type awaited struct {
	found *track.Found
	why   string
}

// takes returns the generation that the next boot is to try before what ran well, nil where
// there is none: where nothing is staged, it was rejected, or the node is to keep what it has.
func (n *Node) takes(s *state.State) *state.Generation {
	if g := n.follower.Takes(s); g != nil && n.rejected(*g) == "" {
		return g
	}
	return nil
}

// awaited returns what a reboot of a node that runs something is waited for, nil where
// nothing is.
func (n *Node) awaited(running *track.Found) (*awaited, error) {
	s, err := n.folder.Load()
	if err != nil || n.boot.Mode == spec.ModeAttached {
		return nil, err
	}
	g := n.takes(s)
	if g == nil || running.Generation.Pair(*g) {
		return nil, nil // what is in effect has to prove itself
	}
	staged, err := n.follower.Recall(g)
	if err != nil {
		return nil, err
	}
	live, why := n.extent(running, staged)
	if live {
		return nil, nil // it failed, and is tried again
	}
	return &awaited{staged, why}, nil
}

// waitsWhy says for which generation a reboot is waited for, what of it needs one, and
// when the node reboots by itself; "" where none is.
func (n *Node) waitsWhy() (string, error) {
	s, err := n.folder.Load()
	if err != nil || n.boot.Mode == spec.ModeAttached || n.follower == nil {
		return "", err
	}
	g := n.takes(s)
	if g == nil {
		return "", nil
	}
	why := fmt.Sprintf("%sgeneration %d", rebootMark, g.Generation)
	running, err := n.running()
	if err != nil {
		return why, nil // the reason is for people; that it waits is certain
	}
	a, err := n.awaited(running)
	switch {
	case err != nil:
		return why, nil // as above
	case a == nil:
		return "", nil
	}
	why += ": " + n.sayWay(a.why)
	if swap := say.Swap(n.view(running)); swap != nil {
		why += "; by itself: " + string(swap.State) + ", " + swap.Detail
	}
	return why, nil
}
