// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type execDoc struct {
	Data          shape.Block         `site:"data,required" doc:"the script; its first line names the interpreter, else bash runs it"`
	File          shape.Text          `site:"file" doc:"file beside the site that holds the script, instead of data"`
	Args          []shape.Block       `site:"args" as:"[--force, /srv]"`
	Env           shape.Map[valueDoc] `site:"env" doc:"values of variables; {secret: NAME} is one that is sealed"`
	Rerun         shape.Text          `site:"rerun_policy" doc:"always (when absent), never or once_successfully"`
	Blocking      shape.Text          `site:"blocking_policy" doc:"foreground (when absent), foreground_halt_pod_on_failure or background"`
	Timeout       shape.Text          `site:"timeout" doc:"seconds; 1800 when absent"`
	RerunInterval shape.Text          `site:"rerun_interval" doc:"seconds between runs, at least 60, or infinity; about a minute when absent"`
	RetryInterval shape.Text          `site:"retry_interval" doc:"seconds between runs after a failure; rerun_interval when absent, else 60"`
	RerunPersist  *shape.Flag         `site:"rerun_interval_persist" doc:"false: forget at boot when the script ran"`
	RetryPersist  *shape.Flag         `site:"retry_interval_persist" doc:"false: forget at boot when the script failed"`
	RerunMax      shape.Text          `site:"rerun_max_count" doc:"how often the script is run again after a success, per boot, or infinite"`
	RetryMax      shape.Text          `site:"retry_max_count" doc:"how often the script is tried again after a failure, per boot, or infinite"`
	Once          shape.Text          `site:"once" enum:"per-root,per-machine" doc:"scope of never and once_successfully; per-root when absent"`
	Revert        shape.Block         `site:"revert" doc:"script that undoes this one, run when the entry is removed"`
	RevertFile    shape.Text          `site:"revert_file" doc:"file beside the site that holds revert"`
	OnFailure     shape.Text          `site:"onFailure" enum:"degrade,rollback" doc:"rollback takes a live change back; degrade when absent"`
	MemoryMax     shape.Text          `site:"memoryMax" doc:"memory of the script and all it starts, as in 256M; above it systemd ends them"`
	CPUQuota      shape.Text          `site:"cpuQuota" doc:"share of a processor, as in 50%; 200% are two"`
	TasksMax      shape.Text          `site:"tasksMax" doc:"processes and threads that the script may have at once"`
	ScriptTimeout shape.Text          `site:"script_timeout" doc:"older name of timeout"`
	At            report.Pos
}

var execModule = Module{Name: "exec", Doc: reflect.TypeFor[shape.Raw[shape.Map[execDoc]]](),
	About:  "scripts, run in the order of their names",
	Inline: inline(map[string]string{"file": "data", "revert_file": "revert"}), Normal: normalExec, Compile: (*Checker).exec,
	Defaults: func(conf map[string]any, _ bool) map[string]any {
		out := map[string]any{}
		for name, script := range conf {
			given, _ := script.(map[string]any)
			for key, v := range map[string]string{"timeout": "1800", "rerun_policy": rules.RerunPolicies[0],
				"blocking_policy": rules.BlockingPolicies[0]} {
				if given != nil && given[key] == nil {
					out[name+"\x00"+key] = v
				}
			}
		}
		return out
	},
	// A script may hold a secret: only its identity is shown.
	Lines: func(i *spec.Items) (out []Line) {
		for _, x := range i.Exec {
			text := cmp.Or(x.Rerun, "always")
			if x.RerunInterval > 0 {
				text += " every " + strconv.FormatInt(x.RerunInterval, 10) + " s"
			}
			for _, name := range slices.Sorted(maps.Keys(x.SecretEnv)) {
				text += ", " + name + " secret " + x.SecretEnv[name]
			}
			out = append(out, Line{x.Name, text + " (" + identity(x) + ")"})
		}
		return out
	},
}

// normalExec gives timeout its one name: the manual says script_timeout.
func normalExec(c *shape.Checker, v *tree.Value) *tree.Value {
	return each(c, v, func(script *tree.Value) *tree.Value {
		older := script.Get("script_timeout")
		if older == nil {
			return script
		}
		c.Warnf(older.At, "older-shape", "write timeout",
			"script_timeout is the documented name that Divingbell ignored; it is taken as timeout")
		return c.Rename(script, func(key string) string {
			if key == "script_timeout" {
				return "timeout"
			}
			return key
		})
	})
}

func (c *Checker) exec(v *tree.Value, f *Fragment) {
	shape.Entries(c.Checker, v, func(e shape.Entry[execDoc]) {
		if e.Val.At != (report.Pos{}) {
			f.Items.Exec = append(f.Items.Exec, c.script(e.Key, e.Val))
		}
	})
	slices.SortFunc(f.Items.Exec, func(a, b spec.Exec) int { return strings.Compare(a.Name, b.Name) })
}

func (c *Checker) script(name shape.Text, d execDoc) spec.Exec {
	x := spec.Exec{Name: name.S, Data: named(d.Data.Text), Rerun: d.Rerun.S, Blocking: d.Blocking.S,
		Args:     plain.Each(d.Args, func(a shape.Block) string { return a.S }),
		RerunMax: c.count(d.RerunMax), RetryMax: c.count(d.RetryMax),
		RerunForget: d.RerunPersist != nil && !d.RerunPersist.On, RetryForget: d.RetryPersist != nil && !d.RetryPersist.On,
		Once: d.Once.S, OnFailure: d.OnFailure.S, Revert: named(d.Revert.Text)}
	for _, t := range []shape.Text{d.Data.Text, d.Revert.Text} {
		if t.S != "" && !strings.HasPrefix(t.S, "#!") {
			c.Warnf(t.At, "script", "begin with #!/bin/bash", "the script does not name its interpreter; bash will run it, as in Divingbell")
		}
	}
	for _, e := range d.Env {
		c.Valid(e.Key.At, rules.Env(e.Key.S))
		if e.Val.Secret.Set() {
			if x.SecretEnv == nil {
				x.SecretEnv = map[string]string{}
			}
			x.SecretEnv[e.Key.S] = e.Val.Secret.S
			c.secret(e.Val.Secret)
			continue
		}
		if x.Env == nil {
			x.Env = map[string]string{}
		}
		x.Env[e.Key.S] = e.Val.Text.S
	}
	c.policy(&x, name.S, d)
	x.MemoryMax = c.amount(d.MemoryMax, map[string]int64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40},
		"bytes, with K, M or G, as in 256M")
	x.CPUQuota = c.amount(d.CPUQuota, map[string]int64{"%": 1}, "percent, as in 50%")
	x.TasksMax = c.amount(d.TasksMax, map[string]int64{"": 1}, "a whole number")
	for _, text := range []shape.Text{d.Data.Text, d.Revert.Text} {
		c.lineFeeds(text)
		c.secretsIn(text)
	}
	checked := x
	checked.Env, checked.SecretEnv = nil, nil // each name has a place of its own
	c.ValidFields(name.At, map[string]report.Pos{"data": d.Data.At, "revert": d.Revert.At, "rerun": d.Rerun.At,
		"blocking": d.Blocking.At, "once": d.Once.At, "onFailure": d.OnFailure.At,
		"timeout": d.Timeout.At, "rerunInterval": d.RerunInterval.At, "retryInterval": d.RetryInterval.At,
		"rerunMax": d.RerunMax.At, "retryMax": d.RetryMax.At,
		"memoryMax": d.MemoryMax.At, "cpuQuota": d.CPUQuota.At, "tasksMax": d.TasksMax.At}, rules.Exec(checked))
	return x
}

// named is a script that names its interpreter: a shell that started one without
// ran it itself, a kernel does not start it.
func named(script shape.Text) string {
	if script.S != "" && !strings.HasPrefix(script.S, "#!") {
		return "#!/bin/bash\n" + script.S
	}
	return script.S
}

// policy checks when a script runs. The messages begin as Divingbell's: pipelines
// search for them.
func (c *Checker) policy(x *spec.Exec, name string, d execDoc) {
	forName := " FOR '" + name + "':"
	if d.Rerun.Set() && !slices.Contains(rules.RerunPolicies, d.Rerun.S) {
		c.Errorf(d.Rerun.At, "enum", report.DidYouMean(d.Rerun.S, rules.RerunPolicies), "BAD 'rerun_policy'%s Got '%s'", forName, d.Rerun.S)
		return
	}
	if d.Blocking.Set() && !slices.Contains(rules.BlockingPolicies, d.Blocking.S) {
		c.Errorf(d.Blocking.At, "enum", report.DidYouMean(d.Blocking.S, rules.BlockingPolicies),
			"BAD 'blocking_policy'%s Got '%s'", forName, d.Blocking.S)
	}
	if d.Timeout.Set() {
		n, err := strconv.ParseInt(d.Timeout.S, 10, 64)
		c.Refuse(err != nil || n < 1 || n > rules.MaxTimeout, d.Timeout.At, "range", "a number of seconds; every script has an end",
			"BAD 'timeout'%s Got '%s'", forName, d.Timeout.S)
		x.Timeout = n
	}
	always := d.Rerun.S == "" || d.Rerun.S == "always"
	x.RerunInterval = c.interval(d.RerunInterval, "rerun_interval", forName, always, "'rerun_policy' must be 'always'")
	x.RetryInterval = x.RerunInterval
	if d.RetryInterval.Set() {
		x.RetryInterval = c.interval(d.RetryInterval, "retry_interval", forName, d.Rerun.S != "never",
			"'rerun_policy' must be 'always' or 'once_successfully'")
	}
	if always && !d.RerunInterval.Set() {
		c.Warnf(d.At, "every-minute", "set rerun_interval, or rerun_policy: once_successfully",
			"%s runs about once a minute, as in Divingbell", name)
	}
}

// count returns how often, 0 for no bound: the manual's infinite.
func (c *Checker) count(t shape.Text) int64 {
	if !t.Set() || t.S == "infinite" || t.S == "infinity" {
		return 0
	}
	n, err := strconv.ParseInt(t.S, 10, 64)
	if err != nil || n > rules.MaxInterval {
		c.Errorf(t.At, "range", "a whole number, or infinite", "%q is not a count", t.S)
		return 0
	}
	return n
}

// amount returns a number with one of the units, 0 when absent.
func (c *Checker) amount(t shape.Text, units map[string]int64, hint string) int64 {
	if !t.Set() {
		return 0
	}
	digits := strings.TrimRight(t.S, "%KMGT")
	unit, ok := units[t.S[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > math.MaxInt64/unit {
		c.Errorf(t.At, "range", hint, "%q is not an amount", t.S)
		return 0
	}
	return n * unit
}

// interval returns seconds: 0 when absent, -1 for never again by time.
func (c *Checker) interval(t shape.Text, key, whose string, finite bool, need string) int64 {
	if !t.Set() {
		return 0
	}
	if t.S == "infinity" || t.S == "infinite" {
		c.Notef(t.At, "infinity", "give seconds to run it again", "%s: %s means never again by time; in Divingbell it meant every pass", key, t.S)
		return -1
	}
	n, err := strconv.ParseInt(t.S, 10, 64)
	if err != nil || n < 60 || n > rules.MaxInterval {
		c.Errorf(t.At, "range", "seconds, or infinity", "BAD '%s'%s Got '%s', but expected >= '60'.", key, whose, t.S)
		return 0
	}
	c.Refuse(!finite, t.At, "combination", "", "BAD COMBINATION: '%s'%s Got '%d', but then %s", key, whose, n, need)
	return n
}

// lineFeeds refuses a script whose lines end otherwise.
func (c *Checker) lineFeeds(text shape.Text) {
	c.Refuse(strings.Contains(text.S, "\r\n"), text.At, "line-ends", "write it with line feeds alone, as dos2unix does",
		"the lines of the script end in CR LF, which its interpreter takes for a part of each word")
}
