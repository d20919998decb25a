// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// field is one NAME=value of a record.
type field struct {
	name  string
	value any
}

// record writes down what was done to this node: the event, who did it, and fields.
// It goes to systemd's journal, with a field there for each here, and is said in one
// line of NAME=value where people read along, quoted where that is needed.
func (n *Node) record(event string, fields ...field) {
	fields = append([]field{{"by", n.o.By}}, fields...)
	if g := n.inEffect(); g > 0 && !slices.ContainsFunc(fields, func(f field) bool { return f.name == "generation" }) {
		fields = append(fields, field{"generation", g})
	}
	var line strings.Builder
	line.WriteString(event)
	for _, f := range fields {
		fmt.Fprintf(&line, " %s=%s", f.name, quote(fmt.Sprint(f.value)))
	}
	err := n.journald(event, line.String(), fields)
	if err != nil || !saidToJournal() { // else it would be there twice
		n.o.Say("%s", line.String())
	}
}

// inEffect is the generation that this node has accepted and runs, 0 where that is not
// known.
func (n *Node) inEffect() uint64 {
	if n.boot == nil || n.folder == nil {
		return 0
	}
	if s, err := n.folder.Load(); err == nil && s.Best() != nil { // a record is made without it, too
		return s.Best().Generation
	}
	return n.boot.Generation.Generation
}

func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " =\"\\") || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}

// recordChanges writes a record of each change that a run made.
func (n *Node) recordChanges(result items.Result, generation uint64, why string) {
	if why == whyDrift {
		n.countCorrections(result.Changes, n.last().Drift)
	}
	for _, d := range result.Changes {
		d = rules.Spelled(d)
		fields := []field{{"item", d.Item}, {"key", d.Key}, {"from", d.From}, {"to", d.To}, {"action", d.Action}, {"generation", generation}, {"why", why}}
		if d.Rival != "" {
			fields = append(fields, field{"rival", d.Rival})
		}
		n.record("change", fields...)
	}
}

// setSync sets the sync axis and notes since when it is so.
func (n *Node) setSync(sync spec.Sync, detail string) {
	if n.boot.Sync != sync || n.boot.Live.SyncSince == 0 {
		n.boot.Live.SyncSince = time.Now().Unix()
	}
	n.boot.Sync, n.boot.SyncDetail = sync, detail
}
