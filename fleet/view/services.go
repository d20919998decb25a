// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"unique"

	"github.com/caisson-os/caisson/internal/plain"
)

// Commit is a service at a commit, as a node reports it.
type Commit struct{ Service, Commit string }

// once returns a text that is in memory once, however many nodes report it.
func once(text string) string { return unique.Make(text).Value() }

// commitsOf returns what a node reports of its services.
func commitsOf(services map[string]string) []Commit {
	return plain.Each(slices.Sorted(maps.Keys(services)), func(name string) Commit { return Commit{once(name), once(services[name])} })
}

// CommitUse says how many nodes have a commit.
type CommitUse struct {
	Commit  string `json:"commit,omitempty"` // none: they are sent the service and do not say that they have it
	Nodes   int    `json:"nodes"`
	Example string `json:"example"` // the first such node
}

// ServiceUse says where a service stands in a fleet. A list of commits begins with the one
// that most nodes have, and is cut.
type ServiceUse struct {
	Name      string      `json:"name"`
	Published []CommitUse `json:"published"`
	Reported  []CommitUse `json:"reported"`
	More      int         `json:"more,omitempty"` // commits that are not listed
	Differ    int         `json:"differ"`         // nodes that report another commit than they were sent, or none
}

const (
	maxServices = 500 // that are listed: nodes may report any name
	maxCommits  = 10  // of one service
)

// Services counts what nodes were sent and what they report. sent returns the commits
// that an overlay brings, by service, and whether it is known.
func Services(nodes []Judged, sent func(overlay string) (map[string]string, bool)) []ServiceUse {
	type tally struct{ published, reported map[string]*CommitUse }
	all, differ := map[string]*tally{}, map[string]int{}
	of := func(name string) *tally {
		if all[name] == nil {
			all[name] = &tally{map[string]*CommitUse{}, map[string]*CommitUse{}}
		}
		return all[name]
	}
	add := func(to map[string]*CommitUse, commit, node string) {
		if to[commit] == nil {
			to[commit] = &CommitUse{Commit: commit, Example: node}
		}
		to[commit].Nodes++
	}
	for _, n := range nodes {
		var was map[string]string
		if n.Published != nil {
			was, _ = sent(n.Published.Overlay)
		}
		for name, commit := range was {
			add(of(name).published, commit, n.Name)
			says := n.Commit(name)
			if says == "" {
				add(of(name).reported, "", n.Name)
			}
			if says != commit {
				differ[name]++
			}
		}
		if n.Report == nil {
			continue
		}
		for _, c := range n.Report.Services {
			if c.Commit == "" {
				continue // it says nothing by that
			}
			add(of(c.Service).reported, c.Commit, n.Name)
		}
	}
	list := []ServiceUse{}
	for name, t := range all {
		u := ServiceUse{Name: name, Published: sorted(t.published), Reported: sorted(t.reported), Differ: differ[name]}
		u.More = max(0, len(u.Published)-maxCommits) + max(0, len(u.Reported)-maxCommits)
		u.Published, u.Reported = u.Published[:min(len(u.Published), maxCommits)], u.Reported[:min(len(u.Reported), maxCommits)]
		list = append(list, u)
	}
	// Where there are too many, those that nobody was sent are left out first.
	slices.SortFunc(list, func(a, b ServiceUse) int {
		return cmp.Or(cmp.Compare(min(1, len(b.Published)), min(1, len(a.Published))), cmp.Compare(a.Name, b.Name))
	})
	list = list[:min(len(list), maxServices)]
	slices.SortFunc(list, func(a, b ServiceUse) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Commit returns the commit of a service that a node reports, "" for none.
func (n *Node) Commit(service string) string {
	if n.Report == nil {
		return ""
	}
	for _, c := range n.Report.Services {
		if c.Service == service {
			return c.Commit
		}
	}
	return ""
}

func sorted(uses map[string]*CommitUse) []CommitUse {
	list := []CommitUse{}
	for _, u := range uses {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b CommitUse) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Commit, b.Commit))
	})
	return list
}
