package main

import (
	"fmt"
	"sort"
	"time"
)

const recent = time.Hour

// describe fills in the state of the API, the writes of the step and what was told.
func (s *stage) describe(expect *Expect, writes []write) error {
	expect.Counts = map[string][2]int{"create": {}, "update": {}, "delete": {}, "total": {}}
	expect.State, expect.Writes = []map[string]any{}, []map[string]any{}
	names := s.wire.called()
	for _, each := range writes {
		if each.Code < 300 {
			for _, what := range []string{each.Verb, "total"} {
				count := expect.Counts[what][0] + 1
				expect.Counts[what] = [2]int{count, count}
			}
		}
		made := map[string]any{"verb": each.Verb, "code": each.Code}
		if each.Name != "" {
			made["slice"] = each.Name
			if known := names[each.Name]; known != "" {
				made["slice"] = known
			}
		}
		if each.Pool != "" {
			made["pool"] = each.Pool
		}
		if each.Injected {
			made["injected"] = true
		}
		expect.Writes = append(expect.Writes, made)
	}
	s.mutex.Lock()
	expect.Errors = append([]map[string]any{}, s.errors...)
	s.mutex.Unlock()
	for driver := range s.drivers {
		found, err := s.list(driver)
		if err != nil {
			return err
		}
		for _, each := range found {
			raw, err := plain(each)
			if err != nil {
				return err
			}
			expect.State = append(expect.State, s.slice(raw.(map[string]any), names[each.Name]))
		}
	}
	sort.SliceStable(expect.State, func(a, b int) bool { return key(expect.State[a]) < key(expect.State[b]) })
	return nil
}

func key(state map[string]any) string {
	pool := state["spec"].(map[string]any)["pool"].(map[string]any)["name"]
	return fmt.Sprintf("%s\x00%s", pool, state["slice"])
}

func (s *stage) slice(object map[string]any, known string) map[string]any {
	metadata := object["metadata"].(map[string]any)
	made := map[string]any{"slice": metadata["name"], "spec": undated(object["spec"])}
	if known != "" {
		made["slice"] = known
	}
	for _, field := range []string{"generateName", "labels", "annotations", "finalizers"} {
		if found := metadata[field]; found != nil {
			made[field] = found
		}
	}
	if owners, found := metadata["ownerReferences"].([]any); found {
		for _, each := range owners {
			owner := each.(map[string]any)
			for name, uid := range s.uids {
				if owner["uid"] == uid {
					owner["uid"] = "$uid:" + name
				}
			}
		}
		made["ownerReferences"] = owners
	}
	return made
}

// undated leaves out what is nothing, and the moment of times that the server has set.
func undated(part any) any {
	switch part := part.(type) {
	case map[string]any:
		for field, value := range part {
			if text, isText := value.(string); isText && field == "timeAdded" {
				moment, err := time.Parse(time.RFC3339, text)
				if err == nil && time.Since(moment).Abs() < recent {
					part[field] = "<now>"
				}
			} else if value == nil {
				delete(part, field)
			} else {
				part[field] = undated(value)
			}
		}
	case []any:
		for index := range part {
			part[index] = undated(part[index])
		}
	}
	return part
}

// called gives the slices that the controller created their names in the vectors.
func (w *wire) called() map[string]string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	numbers, names := map[string]int{}, map[string]string{}
	for _, each := range w.made {
		numbers[each.Pool]++
		names[each.Name] = fmt.Sprintf("new/%s/%d", each.Pool, numbers[each.Pool])
	}
	return names
}

func (w *wire) names() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	names := []string{}
	for _, each := range w.made {
		names = append(names, each.Name)
	}
	return names
}
