// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

var query = spec.Analysis{Query: "latency", Label: "instance", Of: spec.OfWave, Against: spec.AgainstRest, Worse: "> 1.2 ×", For: 10, AtLeast: 2}

// at returns the same values at every moment.
func at(values map[string]float64) (m Measured) {
	for i := range m.At {
		m.At[i] = values
	}
	return m
}

// Worse at all moments is worse, better at all of them passes, and anything else holds.
func TestJudge(t *testing.T) {
	nan, few := math.NaN(), map[string]float64{"a": 1, "b": 1, "c": 1}
	sometimes := at(map[string]float64{"a": 1, "b": 1, "c": 1, "d": 1})
	sometimes.At[3] = map[string]float64{"a": 1, "b": 2, "c": 1, "d": 1}
	missing := at(map[string]float64{"a": 2, "b": 2, "c": 1, "d": 1})
	missing.At[0] = few
	for _, test := range []struct {
		name         string
		m            Measured
		change       func(a *spec.Analysis)
		worse, holds string
	}{
		{name: "equal", m: at(map[string]float64{"a": 1, "b": 1, "c": 1, "d": 1})},
		{name: "at the limit", m: at(map[string]float64{"a": 12, "b": 12, "c": 10, "d": 10})},
		{name: "worse", m: at(map[string]float64{"a": 1.2, "b": 1.4, "c": 1, "d": 1, "stranger": nan}),
			worse: "the mean of 2 nodes is 1.3, that of 2 others is 1; worse is > 1.2 ×, for 10s"},
		{name: "worse than nothing", m: at(map[string]float64{"a": 0, "b": 0.1, "c": 0, "d": 0}), worse: "the mean of 2 nodes is 0.05, that of 2 others is 0; worse is > 1.2 ×, for 10s"},
		{name: "worse once", m: sometimes, holds: "it was at 1 of 6 moments within 10s"},
		{name: "no value once", m: missing, holds: "of the others 1 of 2 nodes have a value, 2 must"},
		{name: "not a number", m: at(map[string]float64{"a": 1, "b": nan, "c": 1, "d": 1}), holds: "node b has the value NaN"},
		{name: "not a number of others", m: at(map[string]float64{"a": 1, "b": 1, "c": math.Inf(1), "d": 1}), holds: "of the others node c has the value +Inf"},
		{name: "nothing", m: at(nil), holds: "0 of 2 nodes have a value, 2 must"},
		{name: "below 0", m: at(map[string]float64{"a": -1, "b": -1, "c": -2, "d": -2}), holds: "values below 0 have no factor"},
		{name: "trouble", m: Measured{Trouble: "it is away"}, holds: "it is away"},
		{name: "a value", m: at(map[string]float64{"a": 1, "b": 1}), change: func(a *spec.Analysis) { a.Against, a.Worse = "", "< 2" },
			worse: "the mean of 2 nodes is 1; worse is < 2, for 10s"},
		{name: "a bound of a later release", m: at(few), change: func(a *spec.Analysis) { a.Worse = "~ 2" }, holds: "is not a bound"},
		{name: "too few", m: at(few), change: func(a *spec.Analysis) { a.AtLeast = 3 }, holds: "2 of 2 nodes have a value, 3 must"},
	} {
		a := query
		if test.change != nil {
			test.change(&a)
		}
		worse, holds := Judge(a, test.m, []string{"a", "b"}, []string{"c", "d"})
		if worse != test.worse || !strings.Contains(holds, test.holds) || test.holds == "" && holds != "" {
			t.Errorf("%s: worse %q, holds %q", test.name, worse, holds)
		}
	}
}

// series answers as Prometheus does, with values at the start, and 10 s after it.
func series(start float64, of ...string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.ReplaceAll(strings.Join(of, ","), "START", fmt.Sprint(start)))
}

// What a Prometheus may answer is read, or is an error that says what is wrong.
func TestMeasure(t *testing.T) {
	now := time.UnixMilli(1_700_000_010_000)
	one := `{"metric":{"instance":"a:9100"},"values":[[START,"1.5"],[1700000010,"NaN"],[1600000000,"7"]]}`
	for name, test := range map[string]struct {
		status int
		body   string
		err    string
	}{
		"values":                {200, series(1_700_000_000, one, `{"metric":{"instance":"b"},"values":[]}`), ""},
		"an error":              {400, `{"status":"error","errorType":"bad_data","error":"parse\nerror"}`, "answer 400 Bad Request of Prometheus: parse; error"},
		"a proxy's page":        {502, "<html>", "answer 502 Bad Gateway of Prometheus: invalid character"},
		"a redirect":            {302, "{}", "answer 302 Found of Prometheus"},
		"success with an error": {200, `{"status":"error"}`, "answer 200 OK of Prometheus"},
		"warnings":              {200, `{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix"}}`, "a store is away"},
		"a scalar":              {200, `{"status":"success","data":{"resultType":"scalar","result":[]}}`, `"scalar" is not a matrix`},
		"two series":            {200, series(1_700_000_000, one, `{"metric":{"instance":"a:9101"},"values":[]}`), "node a has two series: aggregate them, as in sum by (instance)"},
		"another label":         {200, series(1_700_000_000, `{"metric":{"node":"a"},"values":[]}`), `a series has no label "instance"`},
		"no value":              {200, series(1_700_000_000, `{"metric":{"instance":"a"},"values":[[START,"x"]]}`), "value of node a: "},
		"half a pair":           {200, series(1_700_000_000, `{"metric":{"instance":"a"},"values":[[START]]}`), "value of node a: "},
		"a number":              {200, series(1_700_000_000, `{"metric":{"instance":"a"},"values":[[START,1]]}`), "value of node a: "},
		"half an answer":        {200, `{"status":"success","data":{`, "unexpected end"},
		"more than there":       {200, `{"status":"` + strings.Repeat("x", maxAnswer) + `"}`, "it has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/prom/api/v1/query_range" || r.FormValue("query") != "latency" || r.FormValue("start") != "1700000000.000" ||
					r.FormValue("end") != "1700000010.000" || r.FormValue("step") != "2.000" {
					t.Errorf("it is asked %s %s %v", r.Method, r.URL, r.Form)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body)) // who asks may have had enough
			}))
			defer s.Close()
			c, err := Open(s.URL + "/prom/")
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Measure(t.Context(), query, now)
			switch {
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("%v, want %q", err, test.err)
			case test.err == "" && (err != nil || m.At[0]["a"] != 1.5 || len(m.At[1]) > 0 || !math.IsNaN(m.At[5]["a"])):
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}

// One that does not answer in time, and one that is away, are errors that show no password.
func TestAway(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // only then is it seen that the client goes
		<-r.Context().Done()
	}))
	for range 2 {
		c, err := Open(strings.Replace(s.URL, "//", "//eve:secret@", 1))
		if err != nil {
			t.Fatal(err)
		}
		c.http.Timeout = 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = c.Measure(ctx, query, time.Now())
		cancel()
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), "ask Prometheus: ") {
			t.Error(err)
		}
		s.CloseClientConnections()
		s.Close()
	}
}

func TestOpen(t *testing.T) {
	for at, want := range map[string]string{
		"https://eve:secret@p.example.org/prom": "",
		"http://eve:secret@127.0.0.1:9090":      "",
		"http://p.example.org:9090":             "",
		"p.example.org:9090":                    "is not the URL of a Prometheus",
		"https://":                              "is not the URL of a Prometheus",
		"http://eve:secret@p.example.org":       "a password is not sent to p.example.org without TLS",
		"http://eve:secret@[::":                 "cannot be read",
	} {
		_, err := Open(at)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", at, err, want)
		}
	}
}

// Whatever a Prometheus answers is read or refused.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(series(0, `{"metric":{"instance":"a"},"values":[[START,"1"]]}`)))
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[null,"1"],[1e308,"1"]]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r answer
		if json.Unmarshal(data, &r) != nil {
			return
		}
		if m, err := r.measured("instance", time.Unix(0, 0), time.Second); err == nil {
			_, _ = Judge(query, m, []string{"a", "b"}, []string{"c", "d"}) // it does not panic
		}
	})
}
