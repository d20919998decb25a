// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/cli"
)

// Past answers what is asked of earlier generations, see [past.Table].
type Past interface {
	List(ctx context.Context, node, key string) ([]history.Entry, error)
	Between(ctx context.Context, from, to, node string) (*history.Difference, error)
	Beside(ctx context.Context, node, other string) (*history.Difference, error)
}

// generations are the pages of what was published, and the same as JSON.
type generations struct {
	past  Past                           // nil where earlier generations are not read
	looks func(verb, more string) string // is a command that reads what is published
}

// generation is a row of the page.
type generation struct {
	history.Entry
	What *history.Difference // since the one before; nil where that is not read yet
}

const (
	generationsPerPage = 40
	summing            = 3 * time.Second // how long a page waits for what it is made of: the next one has more
)

// list is the page of generations.
func (g generations) list(req *http.Request) (int, any, error) {
	v := req.URL.Query()
	data := map[string]any{"Query": v, "On": g.past != nil}
	if g.past == nil {
		return http.StatusOK, data, nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), summing)
	defer cancel()
	list, err := g.past.List(ctx, v.Get("node"), v.Get("key"))
	if err != nil {
		return wrongPast(data, err)
	}
	at, _ := strconv.Atoi(v.Get("page")) // without a number it is the first page
	at = min(max(1, at), 1+len(list)/generationsPerPage)
	link := func(at int) string {
		return "/generations?" + url.Values{"page": {strconv.Itoa(at)}, "node": {v.Get("node")}, "key": {v.Get("key")}}.Encode()
	}
	if at > 1 {
		data["Newer"] = link(at - 1)
	}
	if at*generationsPerPage < len(list) {
		data["Older"] = link(at + 1)
	}
	data["All"] = len(list)
	data["Rows"] = g.rows(ctx, list[min(len(list), (at-1)*generationsPerPage):min(len(list), at*generationsPerPage)], v.Get("node"))
	return http.StatusOK, data, nil
}

// one is the page of a difference.
func (g generations) one(req *http.Request) (int, any, error) {
	data := map[string]any{"Query": req.URL.Query(), "On": g.past != nil}
	if g.past == nil {
		return http.StatusOK, data, nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), summing)
	defer cancel()
	d, command, err := g.difference(ctx, req)
	if err != nil {
		return wrongPast(data, err)
	}
	data["Between"], data["Command"] = d, command
	return http.StatusOK, data, nil
}

func wrongPast(data map[string]any, err error) (int, any, error) {
	if data["Reading"] = errors.Is(err, history.ErrReading); data["Reading"] == true {
		return http.StatusOK, data, nil
	}
	data["Wrong"] = problemOf(query.WrongQuery, err)
	return http.StatusBadRequest, data, nil
}

// rows adds what each generation changed, as far as that is read in time.
func (g generations) rows(ctx context.Context, list []history.Entry, node string) []generation {
	rows := make([]generation, len(list))
	for i, e := range list {
		rows[i].Entry = e
		if e.Refused == "" && ctx.Err() == nil {
			rows[i].What, _ = g.past.Between(ctx, "", e.Generation.String(), node) // its own page says why not
		}
	}
	return rows
}

// difference returns what the address asks for, and the verb that says the same. The range is that of
// the path, as 41..45; 45 is what that changed, and 41.. goes up to what is published now. Between leaves it
// to the words of a form.
func (g generations) difference(ctx context.Context, req *http.Request) (*history.Difference, string, error) {
	v := req.URL.Query()
	node, beside := v.Get("node"), v.Get("beside")
	if beside != "" {
		if node == "" {
			return nil, "", cli.Usage("name both nodes", "a node is compared with another one")
		}
		d, err := g.past.Beside(ctx, node, beside)
		return d, g.looks("diff", " --node "+cli.ShellWord(beside)+" --node "+cli.ShellWord(node)), err
	}
	from, to, isRange := strings.Cut(req.PathValue("range"), "..")
	if !isRange {
		from, to = "", from
	}
	if to == "between" {
		from, to = v.Get("from"), v.Get("to")
	}
	d, err := g.past.Between(ctx, from, to, node)
	if err != nil || d == nil {
		return nil, "", err
	}
	command := g.looks("diff", " "+d.From+" "+d.To)
	if node != "" {
		command += " --node " + cli.ShellWord(node)
	}
	return d, command, nil
}

// answer returns the content of the pages, for the API.
func (g generations) answer(req *http.Request) (any, error) {
	if g.past == nil {
		return nil, errors.New("this service does not read earlier generations")
	}
	ctx, cancel := context.WithTimeout(req.Context(), summing)
	defer cancel()
	if req.PathValue("range") == "" {
		return g.past.List(ctx, req.URL.Query().Get("node"), req.URL.Query().Get("key"))
	}
	d, _, err := g.difference(ctx, req)
	if err == nil && d == nil {
		err = errors.New("no generation before it is kept")
	}
	return d, err
}

// getGenerations answers the API.
func (s *Server) getGenerations(w http.ResponseWriter, req *http.Request) {
	switch doc, err := (generations{s.o.Past, s.looks}).answer(req); {
	case errors.Is(err, history.ErrReading):
		w.Header().Set("Retry-After", "10")
		s.fail(w, http.StatusServiceUnavailable, "reading", "%v", err)
	case err != nil:
		s.answer(w, http.StatusBadRequest, problemOf(query.WrongQuery, err))
	default:
		s.answer(w, http.StatusOK, doc)
	}
}
