// SPDX-License-Identifier: Apache-2.0

package look

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Wait leaves a generation to a later time.
func (l *Look) Wait(next *track.Found, why string) error {
	l.Effect.Log.Say("generation %d waits for %s", next.Generation.Generation, why)
	return errors.Join(l.Owner.SetSync(spec.SyncBehind, "waits for "+why), l.MarkReboot())
}

// MarkReboot keeps the files by which people and programs such as kured learn that a
// machine wants to be started over: there while something waits for that, and gone
// when it is no longer true. What others have written there stays.
func (l *Look) MarkReboot() error {
	why, err := l.waitsWhy()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(l.Effect.Path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ours string
	var lines []string
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, destination.RebootMark) {
			ours = strings.TrimSuffix(line, "\n")
			continue
		}
		lines = append(lines, line)
	}
	if ours == why {
		return nil
	}
	if why == "" && len(lines) == 0 {
		return errors.Join(durable.Remove(l.Effect.Path(paths.RebootRequired)), durable.Remove(l.Effect.Path(paths.RebootReasons)))
	}
	if why != "" {
		lines = append(lines, why+"\n")
	}
	if err := durable.WriteFile(l.Effect.Path(paths.RebootReasons), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(l.Effect.Path(paths.RebootRequired)); err == nil {
		return nil
	}
	return durable.WriteFile(l.Effect.Path(paths.RebootRequired), []byte("*** System restart required ***\n"), 0o644)
}

// waitsWhy says for which generation a reboot is waited for, what of it needs one, and
// when the node reboots by itself; "" where none is.
func (l *Look) waitsWhy() (string, error) {
	now, err := l.Owner.Read()
	if err != nil || now.Boot.Mode == spec.ModeAttached {
		return "", err
	}
	g := l.Destination.Candidate(now.State)
	if g == nil {
		return "", nil
	}
	why := fmt.Sprintf("%sgeneration %d", destination.RebootMark, g.Generation)
	running, err := l.Effect.Running()
	if err != nil {
		return why, nil // the reason is for people; that it waits is certain
	}
	a, err := l.Destination.Awaited(running)
	switch {
	case err != nil:
		return why, nil // as above
	case a == nil:
		return "", nil
	}
	why += ": " + l.Destination.SayWay(a.Why)
	if swap := say.Swap(l.Operations.View(running)); swap != nil {
		why += "; by itself: " + string(swap.State) + ", " + swap.Detail
	}
	return why, nil
}
