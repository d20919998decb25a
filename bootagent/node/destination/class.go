// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// RebootMark begins the line that is ours in a file which others may write, too.
const RebootMark = "caisson: "

// SayMove says how this node gets to another layer that waits and is here, in the words of
// the plan; "" where that is not known. It reads the disk alone.
func (d *Destination) SayMove() string {
	next, class, why, err := d.Next(context.Background())
	if err != nil || next == nil {
		return "" // the verb that starts the node over says why
	}
	return class + ": " + why
}

// SayWay says how this node gets to what waits, and why it waits where that is not only
// that it is another layer.
func (d *Destination) SayWay(why string) string {
	switch move := d.SayMove(); {
	case move == "":
		return why
	case why == spec.EffectOf(spec.PartLayer).Why:
		return move
	default:
		return move + "; " + why
	}
}

// othersWait returns what others wait for a reboot for: a soft-reboot cannot start a kernel that
// they installed.
func (d *Destination) othersWait() (string, error) {
	data, err := os.ReadFile(d.Path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte(RebootMark)) {
			return strings.TrimSpace(string(line)), nil
		}
	}
	return "", nil
}
