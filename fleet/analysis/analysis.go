// SPDX-License-Identifier: Apache-2.0

// Package analysis compares nodes that a rollout moved with others, by what a Prometheus measured.
//
// [Client.Measure] asks it for the values of all nodes at some moments, [Judge] compares their means. What
// is missing, not a number or not to be had is never well: it holds the rollout where it is. [Waves] says
// what of a plan there is to judge.
package analysis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// moments is how many there are in the time that is looked at, its ends among them.
const moments = 6

// Measured holds the values of nodes at some moments.
type Measured struct {
	At      [moments]map[string]float64 // node → value
	Trouble string                      // why there are none
}

// Judge compares the means of nodes, with those of others where the analysis wants it. It says
// why they are worse, at all moments; or what keeps that from being known, "" where it is known.
func Judge(a spec.Analysis, m Measured, nodes, others []string) (worse, holds string) {
	bound, err := rules.Worse(a.Worse)
	switch {
	case err != nil: // a plan of another release
		return "", err.Error()
	case m.Trouble != "":
		return "", m.Trouble
	}
	beyond := 0
	for _, values := range m.At {
		mine, holds := of(values, nodes, a.AtLeast)
		if holds != "" {
			return "", holds
		}
		worse = fmt.Sprintf("the mean of %s is %.4g", plain.Count(mine.n, "node"), mine.mean)
		var rest side
		if a.Against != "" {
			if rest, holds = of(values, others, a.AtLeast); holds != "" {
				return "", "of the others " + holds
			}
			if mine.mean < 0 || rest.mean < 0 {
				return "", fmt.Sprintf("%s, that of %s is %.4g: values below 0 have no factor", worse, plain.Count(rest.n, "other"), rest.mean)
			}
			worse += fmt.Sprintf(", that of %s is %.4g", plain.Count(rest.n, "other"), rest.mean)
		}
		if bound.Beyond(mine.mean, bound.Of(rest.mean)) {
			beyond++
		}
	}
	worse += fmt.Sprintf("; worse is %s", a.Worse)
	switch beyond {
	case 0:
		return "", ""
	case moments:
		return fmt.Sprintf("%s, for %s", worse, time.Duration(a.For)*time.Second), ""
	}
	return "", fmt.Sprintf("%s: it was at %d of %d moments within %s", worse, beyond, moments, time.Duration(a.For)*time.Second)
}

// Group names the group in which an analysis compares a node, as in "rack r1"; "" is the wave.
func Group(plan *spec.RolloutPlan, a spec.Analysis, node string) string {
	if a.Of != spec.OfGroup || plan.Budget == nil {
		return ""
	}
	return plan.Budget.Per + " " + plan.Budget.Nodes[node]
}

// Waves names the waves of a plan, in order, that an analysis can judge: they have enough nodes,
// and leave enough others.
func Waves(plan *spec.RolloutPlan, a spec.Analysis) (waves []string) {
	left := plan.Size()
	for _, w := range plan.Waves {
		sizes, most := map[string]int{}, 0
		for name := range w.Nodes {
			group := Group(plan, a, name)
			sizes[group]++
			most = max(most, sizes[group])
		}
		others := left - len(w.Nodes)
		if plan.Budget != nil {
			others = left - unjudged(plan.Budget, w, a, sizes)
		}
		if left -= len(w.Nodes); most >= a.AtLeast && (a.Against == "" || others >= a.AtLeast) {
			waves = append(waves, w.Name)
		}
	}
	return waves
}

// unjudged is how many nodes of a wave may have moved before an analysis judges any: not enough of each
// part, and those that the budget lets move with the next step.
func unjudged(b *spec.RolloutBudget, w spec.Wave, a spec.Analysis, parts map[string]int) (n int) {
	for _, size := range parts {
		n += min(size, a.AtLeast-1)
	}
	groups, step := map[string]int{}, 0
	for name := range w.Nodes {
		groups[b.Nodes[name]]++
	}
	for _, size := range groups {
		step += b.AtOnce(size)
	}
	if b.Overall > 0 {
		step = min(step, b.Overall)
	}
	return min(n+step, len(w.Nodes))
}

// side holds the values of one side at a moment.
type side struct {
	n    int // nodes that have a value
	mean float64
}

func of(values map[string]float64, nodes []string, atLeast int) (s side, holds string) {
	sum := 0.0
	for _, name := range slices.Sorted(slices.Values(nodes)) {
		value, has := values[name]
		switch {
		case !has:
			continue
		case math.IsNaN(value) || math.IsInf(value, 0):
			return s, fmt.Sprintf("node %s has the value %v", name, value)
		}
		s.n++
		sum += value
	}
	if s.n < atLeast || s.n == 0 {
		return s, fmt.Sprintf("%d of %s have a value, %d must", s.n, plain.Count(len(nodes), "node"), max(atLeast, 1))
	}
	s.mean = sum / float64(s.n)
	return s, ""
}

// Client asks a Prometheus.
type Client struct {
	at   *url.URL
	http *http.Client
}

const (
	patience  = 30 * time.Second // for an answer
	maxAnswer = 64 << 20
	maxSaid   = 300 // of what it says of an error
)

// Open returns a client of the Prometheus at a URL, whose name and password are used.
func Open(at string) (*Client, error) {
	u, err := url.Parse(at)
	switch {
	case err != nil:
		return nil, errors.New("the URL of Prometheus cannot be read") // it may hold a password
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("%q is not the URL of a Prometheus", u.Redacted())
	case u.User != nil && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return nil, fmt.Errorf("a password is not sent to %s without TLS", u.Host)
	}
	return &Client{u.JoinPath("api/v1/query_range"), &http.Client{Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// answer is the answer to a query over time, as Prometheus documents its HTTP API.
type answer struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		Type   string `json:"resultType"`
		Result []struct {
			Metric map[string]string    `json:"metric"`
			Values [][2]json.RawMessage `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// Measure asks for the values of an analysis' nodes in the time before now.
func (c *Client) Measure(ctx context.Context, a spec.Analysis, now time.Time) (m Measured, err error) {
	step := time.Duration(a.For) * time.Second / (moments - 1)
	start := now.Add(-step * (moments - 1))
	form := url.Values{"query": {a.Query}, "start": {unix(start)}, "end": {unix(now)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.at.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return m, errors.New("the URL of Prometheus cannot be read")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return m, fmt.Errorf("ask Prometheus: %w", err) // it hides a password of the URL
	}
	defer resp.Body.Close() // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return m, fmt.Errorf("ask Prometheus: %w", err)
	}
	if len(data) > maxAnswer {
		return m, fmt.Errorf("answer of Prometheus: it has more than %d bytes", maxAnswer)
	}
	var r answer
	if err := json.Unmarshal(data, &r); err != nil {
		return m, fmt.Errorf("answer %s of Prometheus: %w", resp.Status, err)
	}
	if said := strings.Join(append(r.Warnings, r.Error), "; "); resp.StatusCode != http.StatusOK ||
		r.Status != "success" || len(r.Warnings) > 0 {
		return m, fmt.Errorf("answer %s of Prometheus: %.*s", resp.Status, maxSaid, plain.Line(said))
	}
	return r.measured(a.Label, start, step)
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// measured sorts an answer by moments and nodes.
func (r answer) measured(label string, start time.Time, step time.Duration) (m Measured, err error) {
	if r.Data.Type != "matrix" {
		return m, fmt.Errorf("answer of Prometheus: %.20q is not a matrix", r.Data.Type)
	}
	for i := range m.At {
		m.At[i] = map[string]float64{}
	}
	seen := map[string]bool{}
	for _, series := range r.Data.Result {
		name := nodeOf(series.Metric[label])
		switch {
		case name == "":
			return m, fmt.Errorf("a series has no label %q, which names its node", label)
		case seen[name]:
			return m, fmt.Errorf("node %s has two series: aggregate them, as in sum by (%s) (…)", plain.Line(name), label)
		}
		seen[name] = true
		for _, pair := range series.Values {
			var at float64
			var text string
			if err := errors.Join(json.Unmarshal(pair[0], &at), json.Unmarshal(pair[1], &text)); err != nil {
				return m, fmt.Errorf("value of node %s: %w", plain.Line(name), err)
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return m, fmt.Errorf("value of node %s: %w", plain.Line(name), err)
			}
			if i := int(math.Round((at - float64(start.UnixMilli())/1000) / step.Seconds())); i >= 0 && i < moments {
				m.At[i][name] = value
			}
		}
	}
	return m, nil
}

// nodeOf returns the name of a node from a label's value, without a port.
func nodeOf(value string) string {
	if host, _, err := net.SplitHostPort(value); err == nil {
		return host
	}
	return value
}
