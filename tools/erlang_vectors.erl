%% Expressions for `erl -noshell -eval`: they read questions from stdin, one Erlang term each, and print the answers.
%% erlang_vectors.py asks. The jump hash is that of rabbit_exchange_type_consistent_hash.erl, v4.3.6.

Term = fun
    Term({bin, Bytes}) -> Bytes;
    Term({int, Integer}) -> Integer;
    Term({float, <<Float/float>>}) -> Float;
    Term({atom, Name}) -> binary_to_atom(Name, utf8);
    Term({list, Elements}) -> [Term(E) || E <- Elements];
    Term({tuple, Elements}) -> list_to_tuple([Term(E) || E <- Elements]);
    Term({map, Pairs}) -> maps:from_list([{Term(K), Term(V)} || {K, V} <- Pairs])
end,

Seed = fun
    Seed([]) -> erlang:phash2([]);
    Seed([Head | _]) -> Seed(Head);
    Seed(Key) when is_integer(Key) -> Key;
    Seed(Key) -> erlang:phash2(Key)
end,

Walk = fun
    Walk(B, J, N, _) when J >= N -> [B];
    Walk(-1, J, N, State0) ->
        {R, State} = rand:uniform_s(State0),
        Walk(J, trunc((J + 1) / R), N, State);
    Walk(B, J, N, State0) ->
        {R, State} = rand:uniform_s(State0),
        [B | Walk(J, trunc((J + 1) / R), N, State)]
end,

Outputs = fun
    Outputs(0, _, _) -> [];
    Outputs(Left, Next, State0) ->
        {Output, State} = Next(State0),
        [Output | Outputs(Left - 1, Next, State)]
end,

Floats = fun
    Floats(0, _) -> [];
    Floats(Left, State0) ->
        {Float, State} = rand:uniform_s(State0),
        <<Bits:64>> = <<Float/float>>,
        [Bits | Floats(Left - 1, State)]
end,

Answer = fun
    (otp) ->
        list_to_integer(erlang:system_info(otp_release));
    ({phash2, Tagged, Ranges}) ->
        T = Term(Tagged),
        [erlang:phash2(T), erlang:phash2(T, 4294967296), [erlang:phash2(T, Range) || Range <- Ranges]];
    ({exs1024, Three, Count}) ->
        State = {#{next := Next}, Words} = rand:seed_s(exs1024, Three),
        [Outputs(Count, Next, Words), Floats(Count, State)];
    ({jump, Tagged, Ns, Longest}) ->
        K = Seed(Term(Tagged)),
        State = rand:seed_s(exs1024, {K, K, K}),
        [K, [lists:last(Walk(-1, 0, N, State)) || N <- Ns], Walk(-1, 0, Longest, State)]
end,

Loop = fun Loop() ->
    case io:read(standard_io, '') of
        {ok, Question} -> io:format("~w~n", [Answer(Question)]), Loop();
        eof -> halt(0)
    end
end,
Loop().
