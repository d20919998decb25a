// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Words holds what nodes say, for who does not know by heart what to ask for.
type Words struct{ Versions, Health, Sync []string }

// maxWords bounds each list: nodes may say anything.
const maxWords = 100

// WordsOf returns what nodes say, sorted.
func WordsOf(nodes []Judged) Words {
	all := [3]map[string]bool{{}, {}, {}}
	for _, a := range alike(nodes) {
		of := a.said.Value()
		for i, word := range []string{of.version, of.health, of.sync} {
			if word != "" && len(all[i]) < maxWords {
				all[i][word] = true
			}
		}
	}
	return Words{plain.Names(maps.Keys(all[0])), plain.Names(maps.Keys(all[1])), plain.Names(maps.Keys(all[2]))}
}

// Choices returns what a list of choices offers: what nodes say, and what this release knows.
func Choices(nodes []Judged) Words {
	said := WordsOf(nodes)
	both := func(known, said []string) []string {
		return plain.Names(slices.Values(slices.Compact(slices.Sorted(slices.Values(slices.Concat(known, said))))))
	}
	return Words{said.Versions, both(healths, said.Health), both(syncs, said.Sync)}
}

// States of a node that this release knows; a newer agent may say others.
var (
	healths = []string{string(spec.HealthOK), string(spec.HealthDegraded), string(spec.HealthQuarantined), string(spec.HealthBroken)}
	syncs   = []string{string(spec.SyncCurrent), string(spec.SyncBehind), string(spec.SyncUnreachable),
		string(spec.SyncExpired), string(spec.SyncUnconfirmed), "refused"}
)

// ConditionWords are all conditions that can be asked for.
func ConditionWords() []string {
	return append([]string{string(TroubleWord)}, plain.Each(Kinds, func(k Kind) string { return string(k.Condition) })...)
}

// Check refuses words that no node can meet: an empty list would say that all is well.
// What this release does not know counts where a node says it.
func (q Query) Check(nodes []Judged) error {
	if words := ConditionWords(); q.Condition != "" && !slices.Contains(words, string(q.Condition)) {
		return unknown("condition", string(q.Condition), words)
	}
	if err := q.Sort.Check(); err != nil {
		return err
	}
	if hex := digest.Hex(q.Layer); len(hex) > 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return fmt.Errorf("layer %.80q is not a digest or the beginning of one; version selects a layer's version", q.Layer)
	}
	if q.Commit != "" && q.Service == "" {
		return fmt.Errorf("a commit needs the name of a service")
	}
	said := WordsOf(nodes)
	if q.Health != "" && !slices.Contains(healths, q.Health) && !slices.Contains(said.Health, q.Health) {
		return unknown("health", q.Health, healths)
	}
	if q.Sync == "" || slices.Contains(syncs, q.Sync) || slices.Contains(said.Sync, q.Sync) {
		return nil
	}
	if code, ok := strings.CutPrefix(q.Sync, "refused:"); ok {
		codes := plain.Each(refusal.Codes(), func(c refusal.Code) string { return string(c) })
		if slices.Contains(codes, code) {
			return nil
		}
		return unknown("code of a refusal", code, codes)
	}
	return unknown("sync", q.Sync, syncs)
}

// Nobody says which word of a query no node at all meets, though one could: a mistyped
// version has an empty list, and so has one that everybody has left.
func (q Query) Nobody(nodes []Judged) string {
	none := func(one Query) bool { return !slices.ContainsFunc(nodes, one.Matches) }
	switch {
	case q.Layer != "" && none(Query{Layer: q.Layer}):
		return "no node runs a layer whose digest begins with " + plain.Line(q.Layer)
	case q.Version != "" && none(Query{Version: q.Version}):
		text := "no node runs a layer of version " + plain.Line(q.Version)
		if words := WordsOf(nodes).Versions; len(words) > 0 {
			text += "; they run " + plain.Line(strings.Join(words[:min(len(words), 10)], ", "))
		}
		return text
	case q.Service != "" && none(Query{Service: q.Service}):
		return "no node reports a service " + plain.Line(q.Service)
	case q.Commit != "" && none(Query{Service: q.Service, Commit: q.Commit}):
		return "no node reports commit " + plain.Line(q.Commit) + " of service " + plain.Line(q.Service)
	}
	return ""
}
